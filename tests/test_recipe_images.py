"""N Fig. 7-10: every check of the recipe fails when what it watches is wrong; refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, images
from gdln_jax.recipes._options import with_values


@pytest.fixture(scope="module")
def quick():
    options = with_values(images.Options, {**images.QUICK})
    return options, images.simulate(options)


def failed(options, runs):
    return {check.name for check in images.check(options, runs) if not check.passed}


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(images, "simulate", lambda *_: runs)
    result = images.run(options)
    assert result.passed, [check for check in result.checks if not check.passed]
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]


@pytest.mark.slow
def test_every_check_can_fail(quick):
    options, runs = quick
    seen = set()
    for change in (
        {"agreement": 0.6},
        {"trained": np.full_like(runs.trained, 0.2)},
        {"untrained": 0.3 + 0.01 * runs.gap},
        {"untrained": runs.gap},
    ):
        found = failed(options, replace(runs, **change))
        assert found
        seen |= found
    assert seen == {check.name for check in images.check(options, runs)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": (1,)}, "domains must be"),
        ({"fractions": (0.0,)}, "fractions must lie"),
        ({"gains": (0.0,)}, "gains must be positive"),
        ({"dataset": "mnist"}, "set data_dir"),
        ({"dataset": "mnist", "data_dir": Path("nowhere")}, "not a folder"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        images.simulate(with_values(images.Options, change))
