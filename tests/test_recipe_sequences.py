"""Tasks in turn: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import sequences

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return quick("sequences")


def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == len(sequences.CRITERIA)
    assert "the savings are 0.834" in result.verdict


def changed(*index, by):
    def change(values):
        values = np.array(values)
        values[index] *= by
        return values

    return change


CHANGES = {
    "sequence": {"strength": lambda a: a + 1e-8},
    "savings_reference": {"savings": lambda s: s + 1e-7},
    "fast": {"fast_gates": lambda x: 0.5 * x},
    "period": {"share": lambda x: x + 1e-8},
    "never": {"share_never": lambda x: x + 1e-8},
    "law_low": {"residual": changed(0, 0, 0, by=0.9)},
    "law_high": {"residual": changed(1, 0, 0, by=1.2)},
    "wrong": {"residual": changed(0, 1, 1, by=0.1)},
}


@pytest.mark.parametrize("key", CHANGES)
def test_every_check_can_fail(result, key):
    assert failed(result, **CHANGES[key]) == {key}


def test_every_check_has_its_change():
    assert {one.id for one in sequences.CRITERIA} == set(CHANGES)
