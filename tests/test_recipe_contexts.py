"""H Fig. 3-4: the quick size passes, and every check fails when what it watches is wrong."""

import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, reproduce, with_values
from gdln_jax.recipes.contexts import CRITERIA, RECIPE, simulate

REFERENCES = {"initial_loss", "additive_loss", "singular", "commutator"}  # of the task alone


@pytest.fixture(scope="module")
def result():
    return quick("contexts")


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 17
    assert "'Exactly, for all t' is not true (E24)" in result.verdict
    assert result.numbers["common"] == pytest.approx(1.5, abs=0.5)
    assert result.numbers["contextual"] == pytest.approx(2.7, abs=1.0)
    assert any(note.startswith("pathway_scales=fit") for note in result.notes)


@pytest.mark.slow
def test_every_check_can_fail(result, monkeypatch):
    single = result.data["loss_single"].values
    changes = {
        "flow_loss": {"flow_loss": lambda _: 1e-5},
        "flow_weights": {"flow_weights": lambda _: 1e-5},
        "untied": {"untied": lambda x: 0 * x},
        "relu_mean": {"loss_relu": lambda loss: 1.2 * loss},
        "early strict one": {"power": lambda power: 0 * power + 0.5},
        "reduced": {"loss_reduction": lambda loss: loss + 3 * (loss < 50)},
        "double better": {"loss_double": lambda _: single},
        "scaled scaled_most scaled_late": {"loss_scaled": lambda _: 2 * single},
    }
    seen = set()
    for expected, change in changes.items():
        found = failed(result, **change)
        assert set(expected.split()) <= found, (expected, found)
        seen |= found
    monkeypatch.setattr(simulate, "REFERENCE_LOSSES", {"initial_loss": 105.6, "additive_loss": 16})
    monkeypatch.setattr(simulate, "REFERENCE_SINGULAR", (27.4, 14.6, 10.9, 9.1))
    # Equal structures commute.
    plain = simulate.cx.tasks.semantic_contexts(3, pathways="none", width=1)
    monkeypatch.setattr(simulate.cx, "different", lambda *_: plain)
    found = failed(result)
    assert found >= REFERENCES
    assert seen | found == {one.id for one in CRITERIA}


@pytest.mark.slow
def test_without_a_fit_nothing_is_said_of_one(result):
    given = with_values(RECIPE.options, {**result.options, "pathway_scales": "equal"})
    other = RECIPE.examine(given, result.data)
    assert not any("fitted" in check.name for check in other.checks)
    assert not any("fitted" in note for note in other.notes)


def test_reference_values_are_those_of_the_file(reference):
    task, trained = reference["exact"]["contextual_task"], reference["statistical"]
    known = {"initial_loss": task["L0"], "additive_loss": task["L_after_additive_fit"]}
    assert known == simulate.REFERENCE_LOSSES
    assert task["singular_values_YXT"] == list(simulate.REFERENCE_SINGULAR)
    assert trained["contextual_relu"]["mean"] == list(simulate.REFERENCE_MEAN)
    assert trained["contextual_relu"]["sd"] == list(simulate.REFERENCE_SD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pathway_scales": "fitted"}, "pathway_scales is 'equal', 'fit', or two factors"),
        ({"pathway_scales": (1.0,)}, "two factors"),
        ({"steps": 10}, "steps must be a number at least 1000, got 10"),
        ({"std": 0.0}, "std must be a number above 0"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("contexts", **change)
