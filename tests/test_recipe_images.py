"""N Fig. 7-10: every check of the recipe fails when what it watches is wrong; refusals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, images, reproduce


@pytest.fixture(scope="module")
def quick():
    options = images.Options(**images.QUICK)
    return options, images.simulate(options)


def failed(options, runs):
    return {check.name for check in images.check(options, runs) if not check.passed}


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(images, "simulate", lambda *_, **__: runs)
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
        reproduce("images", **change)


TINY = {
    "domains": (10,), "fractions": (0.5,), "gains": (1.0,), "gain": 1.0, "seeds": 1, "steps": 20,
    "gain_steps": 20, "train_images": 64, "test_images": 200, "width": 4,
}  # fmt: skip


def test_the_paper_preset_is_the_papers_and_gives_way_to_what_is_set():
    options = images.Options(preset="paper", seeds=3)
    settings = options.settings(40, options.count(40, options.steps, 60_000), 1e-9)
    assert (settings.batch_size, settings.learning_rate, settings.momentum) == (8, 1e-4, 0.9)
    assert settings.steps == 1000 * 7500
    assert (options.width, options.seeds) == (128, 3)
    assert options.gains == (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)


def test_a_recipe_goes_on_from_its_checkpoints(tmp_path, monkeypatch):
    said = []
    options = images.Options(**{**TINY, "evaluations": 2, "over": "sum", "checkpoint": tmp_path})
    first = images.simulate(options, lambda _, text: said.append(text))
    assert said[0].startswith("estimate: about")
    assert {path.name for path in tmp_path.iterdir()} == {
        "panel0-M10-K5-gain1.ckpt", "panel1-M10-K5-gain1.ckpt"
    }  # fmt: skip
    # Nothing is left to train: a step would fail.
    monkeypatch.setattr(images, "_seconds_per_step", lambda *_: 0.0)
    monkeypatch.setattr("gdln_jax.images._training._advance", None)
    again = images.simulate(options)
    np.testing.assert_array_equal(first.trained, again.trained)
    np.testing.assert_array_equal(first.untrained, again.untrained)


@pytest.mark.parametrize(
    ("change", "encode", "width"),
    [
        ({}, None, 64),
        ({"features": "conv", "encoder_steps": 2}, None, 2 * 2 * 32),
        ({}, lambda x: x[:, 2:4, 2:4, 0].reshape(len(x), 4), 4),
    ],
)
def test_features_are_those_of_the_recipes_encoder_or_of_the_users(
    monkeypatch, change, encode, width
):
    class SeenError(Exception):
        pass

    def see(nets, train, transforms, *_):
        raise SeenError(transforms.width, nets.encoders[0].shape[-1])

    monkeypatch.setattr("gdln_jax.images.stable_rate", see)
    with pytest.raises(SeenError) as seen:
        images.run(images.Options(**{**TINY, **change}), encode=encode)
    assert seen.value.args == (width, width)
