"""N Fig. 6: a small setting passes, and every check fails when what it watches is wrong."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from recipe_parts import route_maps
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, reproduce
from gdln_jax.recipes.initialisation import CRITERIA, RECIPE, REFERENCE, Options, runs

# Of the quick size what every check needs: both small scales, those of the reference, a wide one.
SMALL = {
    "seeds": 2,
    "widths": (64, 512),
    "scales": (0.15, 0.2, 0.6, 1.0, 2.0),
    "wide_scales": (1.0, 4.0),
    "steps": 1500,
    "wide_steps": 300,
}


@pytest.fixture(scope="module")
def result():
    return quick("initialisation", **SMALL)


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 21
    assert result.data["loss"].dims == ("setting", "seed", "record")
    # Wide networks are not asked for the scales of the narrow ones.
    assert result.data.sizes["setting"] == 7


# Criterion -> variable, setting, and what is made of its values: times the first, plus the second.
CHANGES = {
    "engine": ("engine", ..., 0, 1e-11),
    "kernel": ("kernel", ..., 0, 1e-11),
    "learned": ("trained", 2, 1, 0.01),
    "stability": ("curvature", 1, 3, 0),
    "rise": ("rise", 1, 1, 1e-3),
    "halved": ("halved", 0, 1, 0.1),
    **{f"untrained_{k}": ("untrained", k + 1, 0.2, 0) for k in range(4)},
    "exponent": ("untrained", 0, 1.5, 0),
    "order": ("untrained", 0, 1e5, 0),
    "race": ("loss_race", ..., 1, 3.0),
    "linear": ("loss_linear_each", -1, 1, 4.0),
    "alignment_rich": ("alignment", 0, 1, -0.1),
    "alignment_lazy": ("alignment", -1, 1, 0.2),
    "kernel_change_rich": ("kernel_change", 0, 0, 1),
    "kernel_change_lazy": ("kernel_change", -1, 1, 0.2),
    "kernel_turn": ("kernel_alignment", -1, 1, -0.02),
    "lazy_ratio": ("untrained", -1, 0.5, 0),
}
# An error that is wrong at a small scale changes the exponent, too.
ALSO = {"untrained_0": {"exponent", "order"}, "order": {"exponent"}}


def put(row, values):
    """The change of a variable that puts `values`, or a function of its own, at a setting."""

    def change(x):
        x = x.copy()
        x[row] = values(x[row]) if callable(values) else values
        return x

    return change


@pytest.mark.slow
def test_every_check_can_fail(result):
    for key, (name, row, times, plus) in CHANGES.items():
        changed = put(row, lambda x, times=times, plus=plus: times * x + plus)
        assert failed(result, **{name: changed}) == {key} | ALSO.get(key, set()), key
    # As if the middle setting followed the linear theory.
    followed = put(3, result.data["loss"].values[3])
    assert failed(result, loss_linear_each=followed) == {"not_lazy"}
    assert {*CHANGES, "not_lazy"} == {one.id for one in CRITERIA}


@pytest.mark.slow
def test_references_are_those_of_the_paper_only(result):
    other = Options(**{**SMALL, "init": "xavier"})
    checks = {check.id for check in RECIPE.examine(other, result.data).checks}
    assert {one.id for one in CRITERIA} - checks == {f"untrained_{k}" for k in range(4)}


def test_the_closed_form_of_the_kernel_and_the_linear_theory():
    o = Options(
        domains=3, trained=2, widths=(5, 6), scales=(0.5, 1.0), seeds=2, steps=4, init="xavier"
    )
    s = runs.setting(o, 0)
    assert runs.kernel_error(s) < 1e-13
    # At t = 0 it is the loss of the network, whatever the kernel.
    expected = route_maps.loss(s.start(1, 1.0), jnp.asarray(s.pattern), jnp.asarray(runs.Y))
    assert runs.linear_loss(s, 1, 1)[0] == pytest.approx(float(expected), rel=1e-12)


def test_power_iteration_finds_the_largest_curvature():
    o = Options(domains=2, trained=1, widths=(3, 4), scales=(0.5, 1.5), seeds=1, steps=4)
    s = runs.setting(o, 0)
    stacks, pattern, y = s.start(0, 1.5), jnp.asarray(s.pattern, float), jnp.asarray(runs.Y)
    flat, back = jax.flatten_util.ravel_pytree(stacks)
    hessian = jax.jit(jax.hessian(lambda w: route_maps.loss(back(w), pattern, y)))(flat)
    largest = np.abs(np.linalg.eigvalsh(hessian)).max()
    value = float(jax.jit(runs.largest_curvature)(stacks, pattern, y))
    assert value == pytest.approx(largest, rel=0.02)
    # Five times the curvature at the start keeps the step far from the limit there.
    assert float(s.rates[1]) * value < 0.7 / 5 * 1.02


def test_wide_networks_are_drawn_as_small_ones_and_the_rest_counts_in_movement():
    o = Options(domains=3, trained=2, widths=(8, runs.DRAWN), wide_scales=(1.0, 2.0), seeds=2)
    wide = runs.setting(o, 1)
    size = wide.starts[1].shape[-1]
    assert size == 3 * 4 + 3 * 7
    assert wide.rest == (0.0, runs.DRAWN - size, 0.0)
    assert runs.setting(o, 0).rest == (0.0, 0.0, 0.0)
    start = wide.start(0)
    hidden = np.asarray(start[1][0])
    np.testing.assert_allclose(hidden @ hidden.T, np.eye(size), atol=1e-6)
    moved = jax.jit(runs.at_ends)(start, tuple(1.1 * w for w in start), jnp.asarray(wide.rest))
    norms = np.array([np.sum(np.square(w)) for w in start])
    layers = 0.1 * np.sqrt(norms / (norms + np.asarray(wide.rest)))
    np.testing.assert_allclose(moved["layers"], layers, rtol=1e-12)
    whole = 0.1 * np.sqrt(norms.sum() / (norms.sum() + sum(wide.rest)))
    np.testing.assert_allclose(moved["weights"], whole, rtol=1e-12)


def test_reference_values_are_those_of_the_file(reference):
    known = reference["statistical"]["fig6_M7_K4_zero_shot"]
    errors = dict(zip(known["sigma0"], known["relative_error_mean"], strict=True))
    assert errors == {scale: error for scale, (error, _) in REFERENCE.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trained": 7}, "trained must be below domains"),
        ({"steps": 1}, "steps must be a number at least 2"),
        ({"widths": (64,)}, "widths must be at least two"),
        ({"scales": (1.0, 0.5)}, "scales must be at least two"),
        ({"wide_scales": (0.0, 1.0)}, "wide_scales must be a number above 0"),
        ({"safety": 0.0}, "safety must be a number above 0"),
    ],
)
def test_refused_options(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("initialisation", **change)


def test_a_step_that_is_too_large_says_what_to_change():
    o = Options(
        domains=2, trained=1, widths=(4, 5), scales=(1.0, 2.0), seeds=1, steps=60, safety=20.0
    )
    with pytest.raises(OptionError, match="diverged; use a smaller safety"):
        runs.descend(runs.setting(o, 0), measured=False)
