"""Semantic development: the quick size passes, checks can fail, and a user's data are read."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, reproduce, semantic
from gdln_jax.recipes.semantic import simulate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return quick("semantic")


def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == len(semantic.CRITERIA)
    assert result.numbers["fly"] == pytest.approx(0.3787, abs=1e-3)
    # Items and features interchanged would be seen.
    assert result.numbers["interchanged"] > 3


CHANGES = {
    "predictions": {"predicted": lambda x: x + 1e-7},
    "distances": {"apart": lambda x: x + 1e-7},
    "half_times": {"half_time": lambda x: x + 1e-7},
    "coherence": {"overlap": lambda x: x[..., ::-1]},
    "rule": {"closed": lambda x: np.sort(x, axis=0), "predicted": lambda x: np.sort(x, axis=0)},
}


@pytest.mark.parametrize("key", CHANGES)
def test_checks_can_fail(result, key):
    assert failed(result, **CHANGES[key]) == {key}


def test_independent_values_are_compared(result, monkeypatch):
    monkeypatch.setattr(simulate, "ILLUSORY", {"salmon": (10.4, 0.378)})
    monkeypatch.setattr(simulate, "APART", {"oak": 9.7})
    assert failed(result) == {"illusory", "apart_half"}


def test_data_of_ones_own(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("item,big,red,round\nball,0,1,1\ncar,1,1,0\nmoon,1,0,1\n")
    own = reproduce("semantic", quick=True, csv=file, seeds=4)
    assert own.data["item"].values.tolist() == ["ball", "car", "moon"]
    assert {one.id for one in own.checks} == {"predictions", "distances", "coherence"}
    file.write_text("item,big\nball,huge\ncar,1\n")
    with pytest.raises(OptionError, match="cannot be read"):
        reproduce("semantic", csv=file)
    with pytest.raises(OptionError, match="lower it"):
        reproduce("semantic", amplitude=2.0)
