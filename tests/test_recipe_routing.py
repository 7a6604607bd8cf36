"""N Fig. 4: the quick size passes, every check fails when what it watches is wrong, data of users.

Known answers: N Eq. 13-15 (values of tests/reference.json), the trained quotient (their Euler map),
and E8.
"""

from typing import Any

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick
from sklearn.datasets import load_digits

from gdln_jax import recipes
from gdln_jax.recipes import OptionError, Recipe, load, reproduce
from gdln_jax.recipes.routing import Options, setting, simulate

# A size at which a run costs little more than its compilation.
SMALL: dict[str, Any] = {"domains": 3, "trained": 2, "width": 8, "seeds": 2}


@pytest.fixture(scope="module")
def result():
    return quick("routing", unequal=True)


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 15
    assert "2.4e-05" in result.verdict
    assert result.data.attrs["base"] == "hierarchy of N Fig. 4c"
    assert result.data["b2_theory"].dims == ("time", "mode")
    assert float(result.data["rate"]) == 0.02
    # E9: the effective b(0) of Xavier weights times 0.2 is 0.1016 +- 0.0064, network and mode.
    b, spread = result.numbers["b1_projected"]
    assert b == pytest.approx(0.1016, abs=3 * 0.0064 / np.sqrt(12))
    assert spread < 0.02
    assert result.numbers["b0_fitted"][0] == pytest.approx(b, rel=0.15)


def last(change):
    """Changes the last time."""

    def changed(values):
        values = values.copy()
        values[-1] = change(values[-1])
        return values

    return changed


HIDDEN = np.where(np.arange(15) == 7, 1.0, 0.0)[:, None]
CHANGES = {
    # The hidden layer's strength is 1e-7 too large at the end.
    "strengths": ({"strengths_flow": last(lambda b: b * (1 + 1e-7 * HIDDEN))}, {"flow", "ratio"}),
    "off the frames, flow": ({"outside_flow": last(lambda x: x + 1e-8)}, {"flow"}),
    # Weights that leave the frames count, too.
    "off the frames": ({"outside_descent": last(lambda x: x + 1e-9)}, {"descent"}),
    # An Euler map of a step that is 1e-9 larger is ahead by as much.
    "another map": ({"strengths_map": lambda b: b * (1 + 1e-9)}, {"descent", "descent_loss"}),
    "conserved": ({"conserved_change": lambda x: x + 1e-7}, {"conserved"}),
    "loss": ({"loss_decoupled": lambda x: x * (1 + 1e-9)}, {"descent_loss", "steps"}),
    "reduction": ({"strengths_reduced": lambda b: b + 1e-7}, {"reduced"}),
    "loss of the reduction": (
        {"loss_reduced": lambda x: x + 1e-5},
        {"reduced_loss", "quotient_loss"},
    ),
    "quotient": ({"loss_quotient": lambda x: x + 1e-5}, {"quotient_loss"}),
    "classes": ({"classes": lambda _: np.array(3)}, {"classes_off"}),
    "rates": ({"rates": lambda r: r * (1 + 1e-10)}, {"rates_off"}),
    "growth": ({"growth": lambda x: 1.05 * x}, {"growth"}),
    "no transfer": ({"route_error": lambda x: x + 1e-3}, {"untrained"}),
}


@pytest.mark.slow
def test_every_check_can_fail(result, monkeypatch):
    for name, (changes, expected) in CHANGES.items():
        assert failed(result, **changes) == expected, name
    # Modes of other strength: theory and networks part.
    assert failed(result, s=lambda s: s * (1 + 1e-6)) >= {"flow", "eq15", "reduced"}
    monkeypatch.setattr(simulate, "RATIO", 7**0.5)
    assert failed(result) == {"final_ratio"}
    recipe = load("routing")
    assert isinstance(recipe, Recipe)
    seen = {"eq15", "final_ratio"}.union(*(expected for _, expected in CHANGES.values()))
    assert seen == {one.id for one in recipe.criteria}


@pytest.mark.slow
def test_where_no_route_is_untrained_none_is_checked_or_drawn(result):
    recipe = load("routing")
    assert isinstance(recipe, Recipe)
    data = result.data.assign(pattern=result.data["pattern"] * 0 + 1)
    again = recipe.examine(recipes.with_values(recipe.options, result.options), data)
    assert len(again.checks) == 14
    assert "All routes are trained" in again.verdict
    assert callable(again.figure)
    assert again.figure().axes


@pytest.mark.slow
def test_unequal_inputs_per_output_are_another_race(result):
    """E7: as exact, but most edges are a class of their own and Eq. 15 is off."""
    residual, classes, away = result.data["unequal"].values
    assert residual < 1e-12
    assert classes == 14
    assert away == pytest.approx(0.047, abs=0.001)
    assert any(note.startswith("E7: with 4 outputs per input") for note in result.notes)


def test_arrays_of_the_user(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(30, 3)), y=rng.normal(size=(30, 2)))
    base = str(tmp_path / "mine.npz")
    plan = setting.make_plan(Options(**SMALL, pattern="random_biregular", base=base))
    assert "mine.npz, inputs whitened (3 of 3 directions), condensed" in plan.origin
    np.testing.assert_allclose(plan.modes.d, [1, 1], atol=1e-12)
    assert plan.modes.s[0] > plan.modes.s[1]
    # The best linear prediction is that of least squares; what it leaves is the smallest loss.
    x, y = plan.task.meta["base"]
    fit = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(plan.predict(x), fit, atol=1e-12)
    end = plan.modes.flow(np.inf, plan.b0, plan.b0)
    np.testing.assert_allclose(plan.modes.loss(*end), np.sum((y - fit) ** 2) / (2 * len(y)))
    # In the same ratio to the final strengths as 0.2 on the hierarchy.
    assert plan.b0 == pytest.approx(0.2 * (plan.modes.s[0] / 185**0.5) ** (1 / 3), rel=0.05)


# ------------------------------------------------------------------ base data
def moments(x, y):
    joint = np.concatenate([x, y], axis=1)
    return joint.T @ joint / len(joint)


def test_digits_are_whitened_and_condensed():
    x, y, origin = setting.load_base("digits", None)
    raw, labels, _ = setting.load_base("digits", whiten=False)
    assert x.shape == (61 + 10, 61)
    assert raw.shape == (64 + 10, 64)
    assert origin == (
        "scikit-learn's digits, inputs whitened (61 of 64 directions), condensed from 1797 to 71 "
        "rows of equal moments"
    )
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(61), atol=1e-12)
    np.testing.assert_allclose(np.trace(labels.T @ labels / len(raw)), 1)  # one label each
    # What is learned is the same: the best linear prediction of y has the power of all digits'.
    images, digit = load_digits(return_X_y=True)
    powers = []
    for one, target in ((x, y), (raw, labels), (images, np.eye(10)[digit])):
        fit = one @ np.linalg.lstsq(one, target, rcond=None)[0]
        powers.append(np.sum(fit**2) / len(fit))
    np.testing.assert_allclose(powers[:2], powers[2], rtol=1e-10)


def test_a_file(tmp_path):
    x, y = np.arange(12.0).reshape(4, 3) % 5, np.eye(4, dtype=np.float32)
    np.savez(tmp_path / "base.npz", x=x, y=y, more=1)
    found = setting.load_base(str(tmp_path / "base.npz"), whiten=False)
    np.testing.assert_array_equal(found[0], x)  # no more rows than d + k
    np.testing.assert_array_equal(found[1], y)
    assert found[1].dtype == np.float64
    assert found[2] == "base.npz"


GOOD = np.ones((4, 3))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GOOD}, r"FILE\.npz with arrays x \(n, d\) and y \(n, k\): 'y is not a file"),
        ({"x": GOOD, "y": np.arange(4)}, r"base='.*npz': base y has shape \(4,\); expected"),
        ({"x": GOOD, "y": GOOD[:3]}, "x has 4 examples but base y has 3"),
        ({"x": GOOD * np.nan, "y": GOOD}, "base x is not finite"),
        ({"x": GOOD, "y": np.array([["a"]] * 4)}, "dtype <U1"),
        ({"x": GOOD, "y": np.array([[None]] * 4)}, "allow_pickle"),
    ],
)
def test_bad_arrays_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(OptionError, match=message):
        reproduce("routing", base=str(tmp_path / "bad.npz"))


def test_bad_files_are_exit_code_2_and_leave_nothing(monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.npz").write_text("no archive")
    for name in ("text.npz", "none.npz", "digit"):
        done = command("reproduce", "routing", "--base", name)
        assert done.exit_code == 2, name
        assert name in done.output
        assert [path.name for path in tmp_path.iterdir()] == ["text.npz"]


# ------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pattern": "rows_only", "domains": 6},
            r"trains each output with \d to \d inputs.*E7.*cyclic",
        ),
        ({"trained": 4}, "only 3 domains"),
        ({"width": 3}, "4 modes: use --set width=4"),
        ({"seeds": 0}, "seeds must be a number at least 1"),
        ({"learning_rate": -1.0}, "learning_rate must be a number above 0"),
        ({"duration": 1e5, "learning_rate": 1e-3}, "would take 100000000 steps"),
    ],
)
def test_what_theory_does_not_cover_is_refused_with_the_remedy(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("routing", **{**SMALL, "seed": 3, **change})


def test_data_without_a_common_frame_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)) @ np.diag([1.0, 2.0, 5.0])
    np.savez(tmp_path / "raw.npz", x=x, y=x @ rng.normal(size=(3, 2)))
    with pytest.raises(OptionError, match="whiten=False: no common frames"):
        reproduce("routing", **SMALL, base=str(tmp_path / "raw.npz"), whiten=False)


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["routing_M7_B0_0.2"]
    assert (list(simulate.TIMES), list(simulate.LOSSES)) == tuple(known["loss"].values())
    descent = known["gradient_descent_lr_0.02_loss"]
    assert (list(simulate.STEPS), list(simulate.DESCENT)) == (descent["step"], descent["L"])
    assert known["final_ratio_B2_B1_mode_1"] == simulate.RATIO
