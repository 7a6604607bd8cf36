"""N Fig. 5a-b: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.sharing import simulate


@pytest.fixture(scope="module")
def result():
    return quick("sharing")


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 9
    assert "Eq. 16-17" in result.verdict
    assert result.data["b_flow"].dims == ("paths", "layer", "point", "mode")


def layer(k, change):
    """Changes B1 (k = 0) or B2 of the first network."""

    def changed(values):
        values = values.copy()
        values[0, k] = change(values[0, k])
        return values

    return changed


@pytest.mark.slow
def test_every_check_can_fail(result, monkeypatch):
    shift = {
        "flow": {"spread": lambda x: x + 1e-8},
        "reduced": {"b_reduced": layer(1, lambda x: x + 1e-8)},
        "exponent": {"half_balanced": lambda x: x + 1e-6 * np.arange(len(x))[:, None]},
        "race": {"race_b1": lambda x: x + 1e-8},
        "kept_error": {"kept": lambda x: x + 1e-5},
    }
    for name, changes in shift.items():
        assert failed(result, **changes) == {name}
    assert failed(result, b_flow=layer(0, lambda x: x + 1e-8)) == {"flow"}
    assert failed(result, race_spread=1e-8) == {"race"}
    larger = layer(1, lambda x: x * (1 + 1e-7))
    assert failed(result, b_balanced=larger) == {"ratio", "clock"}
    back = {"race_b2": lambda x: x[::-1], "race_reduced": lambda x: np.stack([x[0], x[1, ::-1]])}
    assert failed(result, **back) == {"decrease"}
    reference = {1: (136.5, 283.5, 587.2), 100: (5.6, 12, 24)}
    monkeypatch.setattr(simulate, "REFERENCE_HALF", reference)
    assert failed(result) == {"half"}
    recipe = load("sharing")
    assert isinstance(recipe, Recipe)
    seen = {*shift, "ratio", "clock", "decrease", "half"}
    assert seen == {one.id for one in recipe.criteria}


def test_the_loser_keeps_what_two_equal_pathways_would():
    """One domain: "shared" and "dedicated" are alike and end with a half each."""
    kept = simulate.loser_keeps(np.array([0.01, 0.3]), np.array([13.0, 3.0]), 1)
    np.testing.assert_allclose(kept, 0.5, rtol=1e-12)


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["sharing_M10"]
    found = {p: list(v) for p, v in simulate.REFERENCE_HALF.items()}
    assert found == {1: known["P1"], 100: known["P100"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": 1}, "domains must be a number at least 2"),
        ({"width": 3}, "width must be a number at least 4"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("sharing", **change)


def test_options_that_leave_nothing_to_learn_are_exit_code_2_and_one_line(
    monkeypatch, tmp_path, command
):
    """Strengths that start above their ends: the time to half is inf."""
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "sharing", "--set", "domains=2", "--set", "amplitude=3."]
    done = command(*words)
    assert done.exit_code == 2
    (line,) = [line for line in done.output.splitlines() if "sharing" in line]
    assert "sharing cannot run with amplitude=3.0: the start is too large" in line
    assert "Traceback" not in done.output
