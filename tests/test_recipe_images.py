"""N Fig. 7-10: every check of the recipe fails when what it watches is wrong; refusals."""

from pathlib import Path

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax import images
from gdln_jax.recipes import OptionError, Recipe, load, reproduce, silent
from gdln_jax.recipes.images import PAPER, Options, simulate


@pytest.fixture(scope="module")
def result():
    return quick("images", gains=(10.0,))  # a small gain is that of the other panel


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 7


@pytest.mark.slow
def test_every_check_can_fail(result):
    gap = result.data["gap"].values
    seen = set()
    for change in (
        {"agreement": 0.6},
        {"trained": lambda accuracy: 0 * accuracy + 0.2},
        {"untrained": lambda accuracy: 0 * accuracy + 0.3 + 0.01 * gap},
        {"untrained": lambda accuracy: 0 * accuracy + gap},
    ):
        found = failed(result, **change)
        assert found
        seen |= found
    assert seen == {check.id for check in result.checks}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domains": (1,)}, "domains must be a number at least 2"),
        ({"domains": ()}, "domains must have at least one entry"),
        ({"fractions": (0.0,)}, "fractions must be a number above 0 and at most 1"),
        ({"gains": (0.0,)}, "gains must be a number above 0"),
        ({"dataset": "mnist"}, "set data_dir"),
        ({"dataset": "mnist", "data_dir": Path("nowhere")}, "not a folder"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("images", **change)


TINY = {
    "domains": (10,),
    "fractions": (0.5,),
    "gains": (1.0,),
    "gain": 1.0,
    "seeds": 1,
    "steps": 20,
    "gain_steps": 20,
    "train_images": 64,
    "test_images": 200,
    "width": 4,
}


def test_the_paper_preset_is_the_papers_and_gives_way_to_what_is_set():
    known = {name: value for name, value in images.PAPER.items() if name != "epochs"}
    assert {**known, "train_images": 60_000, "test_images": 10_000} == PAPER
    options = Options(preset="paper", seeds=3)
    steps = simulate.count(options, 40, options.steps, 60_000)
    settings = simulate.settings(options, 40, steps, 1e-9)
    assert (settings.batch_size, settings.learning_rate, settings.momentum) == (8, 1e-4, 0.9)
    assert settings.steps == 1000 * 7500
    assert (options.width, options.seeds) == (128, 3)
    assert options.gains == (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)


def test_a_recipe_goes_on_from_its_checkpoints(tmp_path, monkeypatch):
    said = []
    options = Options(**{**TINY, "evaluations": 2, "over": "sum", "checkpoint": tmp_path})
    first = simulate.simulate(options, lambda _, text: said.append(text))
    assert said[0].startswith("estimate: about")
    names = {"panel0-M10-K5-gain1.ckpt", "panel1-M10-K5-gain1.ckpt"}
    assert {path.name for path in tmp_path.iterdir()} == names
    # Nothing is left to train: a step would fail.
    monkeypatch.setattr(simulate, "seconds_per_step", lambda *_: 0.0)
    monkeypatch.setattr("gdln_jax.images._training._advance", None)
    again = simulate.simulate(options, silent)
    np.testing.assert_array_equal(first["trained"], again["trained"])
    np.testing.assert_array_equal(first["untrained"], again["untrained"])


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
    recipe = load("images")
    assert isinstance(recipe, Recipe)
    with pytest.raises(SeenError) as seen:
        recipe.run(Options(**{**TINY, **change}), encode=encode)
    assert seen.value.args == (width, width)
