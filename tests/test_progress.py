"""How far a run is: what is reported, to whom, and that nothing else changes."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from matplotlib.figure import Figure
from rich import console as rich_console

import gdln_jax as gdln

# The delay and number of reports, nested reports without a run, and the compiled run of `train`.
from gdln_jax import _progress, _train

TS = [0.0, 1.0, 5.0]
SGD, RULE = optax.sgd(0.05), gdln.rules.sgd(0.05)


@pytest.fixture(scope="module")
def system():
    task = gdln.tasks.hierarchy(width=4)
    reduction = gdln.reduce(task.graph, task.data)
    return task.data, reduction, reduction.quotient(0.3), reduction.embed(0.3)


RUNS = {
    "train": lambda s, p: gdln.train(s[3], s[0], optimizer=SGD, steps=120, progress=p),
    "gradient_flow": lambda s, p: gdln.gradient_flow(s[3], s[0], TS, progress=p),
    "solve": lambda s, p: s[1].solve(0.3, TS, progress=p),
    "quotient": lambda s, p: s[2].solve(TS, progress=p),
    "reduced training": lambda s, p: s[1].train(
        0.3, rule=RULE, steps=120, check_end=False, progress=p
    ),
    "quotient's training": lambda s, p: s[2].train(rule=RULE, steps=120, progress=p),
}
_FLOW = pytest.param("gradient_flow", marks=pytest.mark.slow)
_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in RUNS if name != "train"]


@pytest.mark.parametrize("name", ["train", *_SLOW])
def test_a_function_hears_how_far_a_run_is_and_the_run_stays_the_same(name, system):
    heard: list[tuple[float, str]] = []
    run = RUNS[name](system, lambda *report: heard.append(report))
    np.testing.assert_array_equal(run.losses, RUNS[name](system, False).losses)
    fractions = [fraction for fraction, text in heard if " of " in text]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert fractions[-1] > 0.9
    assert 3 < len(fractions) <= 1.5 * _progress.REPORTS
    losses = [float(x) for _, text in heard for x in re.findall(r"loss ([\d.e+-]+)", text)]
    assert losses[0] == pytest.approx(float(run.losses[0]), rel=1e-3)
    assert min(losses) < losses[0]
    unit, end = ("step", 120) if "train" in name else ("t", 5)
    assert heard[-1][1].startswith(f"{unit} ")
    assert f" of {end}, loss" in heard[-1][1]


@pytest.mark.parametrize("name", ["train", _FLOW])
def test_under_transformations_nothing_is_reported_and_nothing_compiled_in(name, system):
    data, *_, net = system

    def fail(*_: object) -> None:
        raise AssertionError("reported")

    def loss(net: Any) -> jax.Array:
        return RUNS[name]((data, None, None, net), fail).losses[-1]

    def by_rate(rate: jax.Array) -> jax.Array:  # traced in the optimiser only
        run = gdln.train(net, data, optimizer=optax.sgd(rate), steps=3, progress=fail)
        return run.losses[-1]

    both = jax.tree.map(lambda w: jnp.stack([w, w]), net)
    assert jax.vmap(loss)(both).shape == (2,)
    assert "callback" not in str(jax.make_jaxpr(jax.grad(loss))(net))
    assert "callback" not in str(jax.make_jaxpr(lambda: loss(net))())
    assert jax.vmap(by_rate)(jnp.array([0.1, 0.2])).shape == (2,)


def test_the_program_without_progress_has_no_host_callback(system, monkeypatch):
    """What keeps a program out of the persistent cache is a callback to the host."""
    given: list[Any] = []
    plain: Any = _train._train

    def watched(*arguments: Any) -> Any:
        given.append(arguments)
        return plain(*arguments)

    monkeypatch.setattr(_train, "_train", watched)
    for progress in (False, True, lambda *_: None):
        RUNS["train"](system, progress)
    texts = [plain.lower(*arguments).as_text() for arguments in given]
    assert ["callback" in text for text in texts] == [False, False, True]
    assert texts[0] == texts[1]


@pytest.fixture
def terminal(monkeypatch):
    """rich takes the error stream for a terminal; a bar comes at once."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TTY_INTERACTIVE", raising=False)
    monkeypatch.setattr(_progress, "DELAY", 0.0)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_terminal_gets_a_bar_with_steps_and_loss(system, terminal, capsys):
    folder = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        RUNS["train"](system, True)
    finally:
        jax.config.update("jax_compilation_cache_dir", folder)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"training .*step 118 of 120, loss [\d.e-]+ ", _plain(err))


def test_with_a_persistent_cache_the_bar_says_what_is_done_and_no_more(system, terminal, capsys):
    assert jax.config.values["jax_compilation_cache_dir"]  # see conftest.py
    with _progress.reporting("training", 10, "step", True) as report:
        assert report is None
        jax.jit(lambda x: x + 17.25)(1.0)
    assert "training" in _plain(capsys.readouterr().err)
    RUNS["train"](system, True)
    shown = _plain(capsys.readouterr().err)
    assert "training" in shown
    assert "loss" not in shown


def test_what_ends_soon_or_is_not_looked_at_shows_nothing(system, monkeypatch, capfd):
    RUNS["train"](system, True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with _progress.reporting("training", 10, "step", True):
        pass
    assert capfd.readouterr() == ("", "")


def test_there_is_one_display_at_a_time(terminal, capsys):
    with (
        _progress.shown("outer", True) as outer,
        _progress.shown("inner", True) as inner,
    ):
        assert outer is not None
        assert inner is None
    with _progress.shown("given", lambda *_: None), _progress.shown("inner", True) as inner:
        assert inner is None
    assert "inner" not in capsys.readouterr().err
    with _progress.shown("next", True) as following:
        assert following is not None


def test_a_display_is_closed_where_a_run_breaks_off(terminal):
    def run() -> None:
        with _progress.reporting("training", 10, "step", True):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert not _progress._listening
    assert not _progress._display.locked()


def test_a_recipe_has_one_bar_and_what_it_runs_none(terminal, capsys, monkeypatch):
    inner = []

    class Recipe(NamedTuple):
        quick: Any = None
        options: Any = None

        def run(self, _: Any, progress: Any) -> gdln.recipes.Result:
            progress(0.5, "networks")
            with _progress.shown("inner", True) as report:
                inner.append(report)
            return gdln.recipes.Result("routing", xr.Dataset(), (), Figure, "")

    monkeypatch.setattr(gdln.recipes, "load", lambda _: Recipe())
    monkeypatch.setattr(gdln.recipes, "with_values", lambda *_: None)
    heard: list[Any] = []
    for progress in (True, False, lambda *report: heard.append(report)):
        gdln.recipes.reproduce("routing", progress=progress)
    assert inner == [None, None, None]
    assert heard == [(0.5, "networks")]
    assert re.search("routing .*networks", _plain(capsys.readouterr().err))


def test_who_looks(monkeypatch):
    assert _progress.watched() is None
    monkeypatch.setattr(rich_console, "_is_jupyter", lambda: True)
    monkeypatch.setenv("TERM", "xterm-color")
    notebook = _progress.watched()
    assert notebook is not None
    assert notebook.is_terminal
    assert not notebook.is_jupyter  # no widgets
    monkeypatch.setenv("TTY_INTERACTIVE", "0")
    assert _progress.watched() is None


def test_what_is_no_progress_is_refused(refused_plainly):
    refused_plainly("""
import jax, numpy as np, optax, gdln_jax as gdln
task = gdln.tasks.hierarchy(width=4)
reduction = gdln.reduce(task.graph, task.data)
net, sgd, rule = reduction.embed(0.3), optax.sgd(0.1), gdln.rules.sgd(0.1)
words = "progress is 'yes'; pass True for a bar"
attempts = [
    (lambda: gdln.train(net, task.data, optimizer=sgd, steps=2, progress="yes"), words),
    (lambda: gdln.gradient_flow(net, task.data, [0.0, 1.0], progress="yes"), words),
    (lambda: reduction.solve(0.3, [0.0, 1.0], progress="yes"), words),
    (lambda: reduction.quotient(0.3).solve([0.0, 1.0], progress="yes"), words),
    (lambda: reduction.train(0.3, rule=rule, steps=2, progress="yes"), words),
    (lambda: gdln.recipes.reproduce("xor", progress="yes"), words),
    (lambda: gdln.sweep(lambda key, x: x, {"x": [1.0]}, key=jax.random.key(0), progress=1), "is 1"),
]
""")
