"""H Fig. 5: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
import xarray as xr
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, reproduce
from gdln_jax.recipes.more_contexts import CRITERIA, Options, simulate


@pytest.fixture(scope="module")
def result():
    # Larger steps than H's, which move the curves by less than a seed does.
    return quick("more-contexts", seeds=1, learning_rate=4e-3, steps=2000)


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 10
    assert "2 of 3, 3 of 4 contexts with inputs as printed, and in 2 of 3, 3 of 4" in result.verdict
    for name in ("power", "power_code"):
        np.testing.assert_allclose(np.nansum(result.data[name], axis=-1), 1, atol=1e-5)


@pytest.mark.slow
def test_every_check_can_fail(result, monkeypatch):
    turned = {name: lambda x: x[..., ::-1] for name in ("power", "power_code")}
    changes = {
        "start": {"start_3": lambda x: 1.001 * x},
        "residual": {"residual_4": lambda _: 1e-7},
        "overlap": {"overlap_3": lambda _: 1e-11},
        "whole": {"whole_4_code": lambda x: 1.02 * x},
        "gated": {"loss_gated_4": lambda x: 1.05 * x},
        "relu": {"loss_relu_4_code": lambda x: 1.5 * x},
        "majority": turned,
    }
    seen = set()
    for expected, change in changes.items():
        found = failed(result, **change)
        assert found == {expected}
        seen |= found
    wrong = np.array(simulate.REFERENCE_MODES) * (1 + 1e-9)
    for key, name, value in (
        ("modes", "REFERENCE_MODES", wrong),
        ("initial", "INITIAL", 32.1),
        ("additive", "ADDITIVE", 8.6),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(simulate, name, value)
            assert failed(result) == {key}
            seen.add(key)
    # That of five contexts: below.
    assert seen == {one.id for one in CRITERIA} - {"e26"}


def test_five_contexts_have_their_majorities_and_shares():
    """E26: 3 of 5 as printed, 4 of 5 in the public code; texts and checks have both."""
    o, power = Options(seeds=1), np.full((2, 3, 1, 6), np.nan)
    v: dict[str, np.ndarray] = {}
    for c, size, tag in simulate.members(o):
        shares = np.eye(c + 1)[simulate.MAJORITY[c, size]]
        if c == 5:
            shares[3:5] = simulate.REFERENCE_POWER[size]
        power[int(size != 1) :, o.contexts.index(c), 0, : c + 1] = shares
        v |= {f"loss_{kind}_{tag}": np.ones((1, 4)) for kind in ("relu", "gated")}
        v |= {f"{name}_{tag}": np.ones((1, 4, 1)) for name in ("whole", "common")}
        v |= {f"common_theory_{tag}": np.ones((4, 1)), f"final_{tag}": np.ones(1)}
        v |= {f"{name}_{tag}": np.ones(4) for name in ("loss_theory", "start", "strict")}
        v |= {f"residual_{c}": np.zeros(()), f"overlap_{c}": np.zeros(())}

    def numbers():
        arrays = v | {"power": power[0], "power_code": power[1]}
        dims = {name: [f"{name} {k}" for k in range(x.ndim)] for name, x in arrays.items()}
        return simulate.measure(o, xr.Dataset({k: (dims[k], x) for k, x in arrays.items()}))

    found = numbers()
    assert found["printed"] == "2 of 3, 3 of 4, 3 of 5"
    assert found["of_code"] == ", and in 2 of 3, 3 of 4, 4 of 5 with those of the public code"
    assert found["beyond"] == "C = 5"
    assert found["five"]
    assert found["e26"] == 0
    power[0, 2, 0, 3] += 0.2
    assert numbers()["e26"] == pytest.approx(0.2)


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["contexts"]
    assert known["C3"] == list(simulate.REFERENCE_MODES)
    assert known["L0"] == {f"C{c}": simulate.INITIAL * c for c in (3, 4, 5)}
    assert known["L_after_common"] == {f"C{c}": simulate.ADDITIVE * (c - 1) for c in (3, 4, 5)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contexts": (2,)}, "contexts must be a number at least 3, got 2"),
        ({"contexts": (3, 3)}, "different numbers from 3"),
        ({"width": 4}, "width must be a number at least 8, got 4"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("more-contexts", **change)
