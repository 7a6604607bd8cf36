"""The recipe `gates` (H Fig. 8-9): it runs, and every check can fail."""

import dataclasses

import equinox as eqx
import numpy as np
import pytest

# The part on learned gates is checked at its short setting.
from gdln_jax.recipes import _gates_figure, _gates_learned, gates

figure, learning = _gates_figure, _gates_learned

OPTIONS = gates.Options(**{**gates.QUICK, "seeds": 3, "snapshots": 40})


@pytest.fixture(scope="module")
def runs():
    return gates.simulate(OPTIONS)


def failing(runs):
    return {c.name for c in gates.check(OPTIONS, runs)[0] if not c.passed}


@pytest.mark.slow
def test_every_check_can_fail(runs):
    assert failing(runs) == set()
    wrong = [np.ones((4, 3), int)] * 3
    choice, gap = runs.choice, runs.gap
    modules = (*choice.modules[:3], choice.modules[0], *choice.modules[4:])

    def chosen(**values):
        return dataclasses.replace(runs, choice=dataclasses.replace(choice, **values))

    seen = set().union(
        failing(dataclasses.replace(runs, blocks={**runs.blocks, "output power": wrong})),
        failing(dataclasses.replace(runs, blocks={**runs.blocks, "plain (H)": wrong})),
        failing(chosen(k=None)),
        failing(chosen(modules=modules)),
        failing(chosen(gap=choice.gap[::-1])),
        failing(dataclasses.replace(runs, gap=eqx.tree_at(lambda g: g.loss, gap, gap.loss + 0.1))),
    )
    assert seen == {c.name for c in gates.check(OPTIONS, runs)[0]}


@pytest.mark.slow
def test_the_picture(runs):
    _, facts = gates.check(OPTIONS, runs)
    data = figure.dataset(runs, facts)
    assert data["gap"].shape == (6, 2)
    assert len(figure.draw(data, facts).axes) == 7  # three centroids, their bar, three panels
    assert "imitation, not identity" in gates._finding(runs, facts)


@pytest.mark.slow
def test_the_part_on_learned_gates(runs):
    found = learning.simulate(24, 0, short=True)
    checks, numbers = learning.check(found)
    assert all(check.passed for check in checks)
    assert "the faster gating at 6 of 6 margins" in learning.finding(found, numbers)
    _, facts = gates.check(OPTIONS, runs)
    data = figure.dataset(runs, facts)
    learning.record(data, found)
    assert data["learned_gating"].dims == ("margin", "start")
    assert len(figure.draw(data, facts, (found, numbers)).axes) == 11  # four panels more
    wrong = dataclasses.replace(
        found,
        corners=1.1 * found.corners,
        margin=1 - found.margin,
        blocks={**found.blocks, "held": 1 - found.blocks["held"]},
    )
    assert not any(check.passed for check in learning.check(wrong)[0])


@pytest.mark.parametrize("wrong", [{"elbow_seeds": 13}, {"snapshots": 1}, {"std": 0.0}])
def test_refused_options(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        gates.Options(**wrong)
