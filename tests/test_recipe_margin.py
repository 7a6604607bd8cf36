"""H Fig. 2: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.margin import simulate


@pytest.fixture(scope="module")
def result():
    return quick("margin")


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 12
    assert result.data["loss"].dims == ("delta", "seed", "time")


def larger(row, column):
    """One error of the aligned networks is 1e-7."""

    def changed(values):
        values = values.copy()
        values[row, column] = 1e-7
        return values

    return changed


CHANGES = [
    ({"aligned": larger(0, 0)}, {"linear_flow"}),
    ({"aligned": larger(0, 1)}, {"linear_descent"}),
    ({"aligned": larger(1, 0)}, {"xor_flow"}),
    ({"aligned": larger(1, 1)}, {"xor_descent"}),
    ({"t": lambda t: t * 1.06}, {"latest", "low", "high"}),
    ({"t": lambda t: t * 0.96}, {"earliest", "low", "high"}),
    ({"t_step": lambda t: t * 1.06}, {"step"}),
    ({"share": lambda shares: shares[..., [1, 0, 2]]}, {"crossing"}),
    ({"share": lambda shares: shares[::-1]}, {"crossing"}),
]


@pytest.mark.slow
def test_every_check_can_fail(result, monkeypatch):
    seen = set()
    for changes, expected in CHANGES:
        found = failed(result, **changes)
        assert expected <= found
        seen |= found
    margin = lambda *_, **__: np.sqrt(2 / 3) + 1e-8  # noqa: E731
    monkeypatch.setattr(simulate.exact, "margin_crossover", margin)
    assert failed(result) == {"crossover", "crossover_units"}
    recipe = load("margin")
    assert isinstance(recipe, Recipe)
    assert seen | {"crossover", "crossover_units"} == {one.id for one in recipe.criteria}


def test_reference_values_are_those_of_the_file(reference):
    crossover = reference["exact"]["margin"]["crossover_equal_a0_at_L_0.2"]
    assert crossover == {
        f"a0_{a0:.0e}".replace("e-0", "e-"): value
        for a0, value in simulate.REFERENCE_CROSSOVER.items()
    }
    times = reference["statistical"]["margin_relu"]
    found = {delta: tuple(times[f"delta_{delta}"]) for delta in (0.2, 1.2)}
    assert found == simulate.REFERENCE_TIMES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deltas": (1.0, 0.5)}, "two increasing margins"),
        ({"level": 0.6}, "level must be a number above 0 and below 0.5"),
        ({"width": 10}, "multiple of 4"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("margin", **change)
