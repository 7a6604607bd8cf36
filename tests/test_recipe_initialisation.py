"""N Fig. 6: a small setting passes, and every check fails when what it watches is wrong."""

from dataclasses import replace

import jax
import jax.flatten_util
import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, initialisation, reproduce
from gdln_jax.recipes import _initialisation_runs as sim

SMALL = {
    "seeds": 2, "widths": (64, 96), "scales": (0.1, 0.2, 0.6, 1.0, 2.0), "wide_scales": (1.0, 4.0),
    "steps": 2000, "wide_steps": 500,
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    options = initialisation.Options(**SMALL)
    return options, initialisation.simulate(options)


def failed(options, runs):
    return {check.name for check in initialisation.check(options, runs)[0] if not check.passed}


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_is_drawn(small, monkeypatch):
    options, runs = small
    monkeypatch.setattr(initialisation, "simulate", lambda *_: runs)
    result = initialisation.run(options)
    assert [check.name for check in result.checks if not check.passed] == []
    assert len(result.checks) == 21
    assert "holds" in result.verdict
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]
    assert result.data["loss"].dims == ("setting", "seed", "record")
    # Wide networks are not asked for the narrow ones' scales.
    assert result.data.sizes["setting"] == 7


@pytest.mark.slow
def test_every_check_can_fail(small):
    options, runs = small
    rich, middle, _, lazy = runs.ends

    def with_(**changes):
        return replace(runs, values={**runs.values, **changes})

    values, seen = runs.values, set()
    swapped = np.arange(len(runs.scale))
    swapped[[rich, lazy]] = lazy, rich
    for changed in (
        replace(runs, engine=1e-11),
        replace(runs, kernel=1e-11),
        replace(runs, halved=0.1),
        replace(runs, race=runs.race * np.exp(-np.arange(len(runs.race)) / 30)),
        replace(runs, linear={**runs.linear, lazy: 0.5 * runs.linear[lazy] + 20}),
        replace(runs, linear={**runs.linear, middle: values["loss"][middle]}),
        with_(trained=np.full_like(values["trained"], 0.01)),
        with_(curvature=2 * values["curvature"]),
        with_(rise=np.full_like(values["rise"], 1e-3)),
        with_(untrained=np.full_like(values["untrained"], 0.5)),
        with_(untrained=values["untrained"][::-1]),
        with_(alignment=values["alignment"][swapped]),
        with_(
            kernel_change=values["kernel_change"][swapped],
            kernel_alignment=values["kernel_alignment"][swapped],
        ),
    ):
        found = failed(options, changed)
        assert found
        seen |= found
    assert seen == {check.name for check in initialisation.check(options, runs)[0]}


def test_the_closed_form_of_the_kernel_and_the_linear_theory():
    s = sim.setting("xavier", 3, 2, 5, (0.5, 1.0), 2, 0, 4, 0.7)
    assert sim.kernel_error(s) < 1e-13
    # At t = 0 it is the network's own loss, whatever the kernel.
    start = jax.tree.map(lambda w: w[1].astype(float), s.starts)
    maps = np.asarray(sim._route_maps.maps(start))
    expected = float(np.sum(s.pattern[..., None, None] * (maps - s.y) ** 2)) / (2 * 6 * 4)
    assert sim.linear_losses(s, 1, 2)[1, 0] == pytest.approx(expected, rel=1e-12)


def test_power_iteration_finds_the_largest_curvature():
    s = sim.setting("orthogonal", 2, 1, 3, (0.5, 1.5), 1, 0, 4, 0.7)
    stacks = jax.tree.map(lambda w: 1.5 * w[0].astype(float), s.starts)
    flat, back = jax.flatten_util.ravel_pytree(stacks)
    hessian = jax.jit(jax.hessian(lambda w: sim._route_maps.loss(back(w), s.pattern, s.y)))(flat)
    largest = np.abs(np.linalg.eigvalsh(hessian)).max()
    found = float(sim.largest_curvature(stacks, s.pattern, s.y))
    assert found == pytest.approx(largest, rel=0.02)
    # Five times the curvature at the start keeps the step far from the limit there.
    assert float(s.rates[1]) * found < 0.7 / 5 * 1.02


def test_wide_networks_are_drawn_as_small_ones_and_the_rest_counts_in_movement():
    wide = sim.setting("orthogonal", 3, 2, sim.DRAWN, (1.0,), 2, 0, 4, 0.7)
    size = wide.starts[1].shape[-1]
    assert size == 3 * 4 + 3 * 7
    assert wide.rest == (0.0, sim.DRAWN - size, 0.0)
    hidden = np.asarray(wide.starts[1][0, 0], float)
    np.testing.assert_allclose(hidden @ hidden.T, np.eye(size), atol=1e-6)
    assert sim.setting("xavier", 3, 2, sim.DRAWN, (1.0,), 1, 0, 4, 0.7).rest == (0.0, 0.0, 0.0)
    pattern, y = jax.numpy.asarray(wide.pattern, float), jax.numpy.asarray(wide.y)
    start = jax.tree.map(lambda w: w[0].astype(float), wide.starts)
    end = jax.tree.map(lambda w: 1.1 * w, start)
    some = np.array([[0, 0]])
    rest = jax.numpy.asarray(wide.rest)
    moved = sim._ends(start, end, pattern, y, some, rest)
    norms = np.array([np.sum(np.square(w)) for w in start])
    layers = 0.1 * np.sqrt(norms / (norms + np.asarray(wide.rest)))
    np.testing.assert_allclose(moved["layers"], layers, rtol=1e-12)
    whole = 0.1 * np.sqrt(norms.sum() / (norms.sum() + sum(wide.rest)))
    np.testing.assert_allclose(moved["weights"], whole, rtol=1e-12)


def test_reference_values_are_those_of_the_file(reference):
    known = reference["statistical"]["fig6_M7_K4_zero_shot"]
    assert dict(zip(known["sigma0"], known["relative_error_mean"], strict=True)) == (
        initialisation.REFERENCE
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained": 7}, "trained must be below domains"),
        ({"steps": 1}, "steps and wide_steps"),
        ({"widths": (64,)}, "widths must be at least two"),
        ({"scales": (1.0, 0.5)}, "scales must be at least two"),
        ({"wide_scales": (0.0, 1.0)}, "wide_scales must be"),
        ({"safety": 0.0}, "safety must be a number above 0"),
    ],
)
def test_refused_options(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("initialisation", **change)


def test_a_step_that_is_too_large_says_what_to_change():
    s = sim.setting("orthogonal", 2, 1, 4, (1.0, 2.0), 1, 0, 60, 20.0)
    with pytest.raises(OptionError, match="diverged; use a smaller safety"):
        sim.descend(s)
