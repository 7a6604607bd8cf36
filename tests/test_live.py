"""Live pages: the browser's integrator and equations against `Reduction.solve`."""

import dataclasses
import itertools
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_parts import FAMILIES, Setup, own, parameter_data

import gdln_jax as gdln
from gdln_jax import exact, tasks

SCRIPT = Path(gdln.__file__).parent / "_live" / "reduced.js"


@pytest.fixture(scope="module")
def js(tmp_path_factory):
    """Runs an expression of JavaScript with `reduced` and `data`, under node or in Chromium."""
    folder = tmp_path_factory.mktemp("js")
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if node is None and chromium is None:
        pytest.skip("neither node nor chromium is installed: JavaScript cannot run here")

    def run(expression: str, data: object) -> object:
        text = f"{SCRIPT.read_text()}\nconst data = {json.dumps(data)};\n"
        if node is not None:
            file = folder / "run.js"
            file.write_text(f"{text}\nconsole.log(JSON.stringify({expression}));")
            command = [node, str(file)]
        else:
            file = folder / "run.html"
            write = f"document.body.textContent = JSON.stringify({expression})"
            file.write_text(f"<body><script>{text}{write}</script></body>")
            command = [str(chromium), "--headless", "--no-sandbox", "--dump-dom", file.as_uri()]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return json.loads(out.split("<body>")[-1].split("</body>")[0])

    return run


def drawn(setup: Setup, count: int, seed: int) -> list[dict[str, float]]:
    """Random values within the ranges of the sliders."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        values = {}
        for p in setup.parameters:
            if p.options:
                values[p.key] = float(rng.choice(p.options))
            elif p.log:
                values[p.key] = float(np.exp(rng.uniform(np.log(p.low), np.log(p.high))))
            else:
                at = rng.uniform(p.low, p.high)
                values[p.key] = float(round(at)) if p.step == 1 else float(at)
        found.append(values)
    return found


def pages_losses(js, setup: Setup, settings: Sequence[Mapping[str, float]], ts) -> np.ndarray:
    """(setting, time, loss) as the page computes them, for times (setting, time)."""
    data = {
        "system": dataclasses.asdict(setup.system),
        "parameters": [parameter_data(p) for p in setup.parameters],
        "settings": list(settings),
        "ts": np.asarray(ts).tolist(),
    }
    return np.array(
        js(
            "data.settings.map((values, k) => reduced.solve("
            "reduced.coefficients(data.system, data.parameters, values), data.ts[k]).losses)",
            data,
        )
    )


def times(count: int, end: float) -> np.ndarray:
    """0, then up to `end`, (setting, time): learning is over at about 30, then ends are stiff."""
    return np.tile(np.append(0.0, np.geomspace(0.3, end, 40)), (count, 1))


def worst(page: np.ndarray, python) -> float:
    """The largest difference of losses (setting, time), over L(0)."""
    python = np.asarray(python)
    assert page.shape == python.shape
    return float(np.max(np.abs(page - python) / python[:, :1]))


def test_routing_agrees_with_the_reduction(js):
    setup = FAMILIES["routing"]()
    settings = drawn(setup, 20, seed=1)
    task = tasks.routing(2, width=4)
    reduction = gdln.reduce(task.graph, task.data)
    ts = times(20, 300)
    order = np.argsort(-np.abs(reduction.strengths["x0", "y0"]))

    def solve(v, ts):
        factor = jnp.ones(4).at[order].set(jnp.array([v["s1"], v["s2"], v["s3"], v["s3"]]))
        data = eqx.tree_at(
            lambda r: [t.target for t in r.mode_data.outputs if t is not None],
            reduction,
            replace_fn=lambda target: target * factor,
        )
        hidden = {"h1->h2": v["b2"]}
        b0 = {e.name: hidden.get(e.name, v["b1"]) for e in task.graph.edges}
        tau = {e.name: 1.0 if e.name in hidden else v["M"] / 2 for e in task.graph.edges}
        return data.solve(b0, ts, tau=tau, progress=False).losses

    stacked = {key: jnp.array([v[key] for v in settings]) for key in settings[0]}
    python = jax.jit(jax.vmap(solve))(stacked, jnp.asarray(ts))
    assert worst(pages_losses(js, setup, settings, ts)[..., 0], python) < 1e-6


@pytest.mark.parametrize(("depth", "count"), [(2, 15), pytest.param(3, 5, marks=pytest.mark.slow)])
def test_the_race_agrees_with_the_reduction(js, depth, count):
    setup = FAMILIES["claims"]()
    settings = [values | {"L": depth} for values in drawn(setup, count, seed=depth)]
    found = [
        tasks.multiview(
            4,
            3,
            strengths=[v["s1"], v["s2"], v["s3"]],
            presence=v["p"],
            width=4,
            hidden_layers=depth - 1,
        )
        for v in settings
    ]
    reductions = [gdln.reduce(task.graph, task.data) for task in found]
    stacked = jax.tree.map(lambda *one: jnp.stack(one), *reductions)
    ts = times(count, 300 if depth == 2 else 3000)
    view = {e.name: 1 + int(e.name.split("->")[0].strip("xh")[0]) for e in found[0].graph.edges}
    start = {name: jnp.array([v[f"u{k}"] for v in settings]) for name, k in view.items()}
    python = eqx.filter_jit(eqx.filter_vmap(lambda r, b0, ts: r.solve(b0, ts).losses))(
        stacked, start, jnp.asarray(ts)
    )
    assert worst(pages_losses(js, setup, settings, ts)[..., 0], python) < 1e-6


@pytest.mark.slow
def test_sharing_agrees_with_the_reduction(js):
    setup = FAMILIES["sharing"]()
    settings = [v | {"s1": 1.0, "s2": 1.0, "s3": 1.0, "q": 4} for v in drawn(setup, 5, seed=4)]
    task = tasks.pathway_sharing(4, (16, 1), width=4)
    reduction = gdln.reduce(task.graph, task.data)
    quotient = reduction.quotient({e.name: 0.1 + ("_16_" in e.name) for e in task.graph.edges})
    shared = np.array(["_16_" in names[0] for names in quotient.classes])
    ts = times(5, 300)
    x0 = np.array([np.where(shared, v["shared"], v["own"])[:, None] for v in settings])
    python = eqx.filter_jit(eqx.filter_vmap(lambda x0, ts: quotient.solve(ts, x0=x0).losses))(
        jnp.asarray(x0), jnp.asarray(ts)
    )
    assert worst(pages_losses(js, setup, settings, ts)[..., 0], python) < 1e-6


def test_the_margin_agrees_with_the_closed_form(js):
    setup = FAMILIES["margin"]()
    settings = drawn(setup, 5, seed=5)
    ts = times(5, 3000)
    page = pages_losses(js, setup, settings, ts)
    for k, gating in enumerate(("linear", "xor")):
        theory = [
            exact.margin_loss(t, v["delta"], v[gating], gating=gating)
            for t, v in zip(ts, settings, strict=True)
        ]
        assert worst(page[..., k], theory) < 1e-6


def test_sliders_of_any_page_change_the_loss_as_the_data_do(js):
    """Gates that are open independently of one another, and strengths, against data with them."""
    graph = gdln.Graph(
        {"x": 2, "h": 3, "g": 3, "y": 2}, [("x", n) for n in "hg"] + [(n, "y") for n in "hg"]
    )
    x, open_h, open_g = (
        np.array(a) for a in zip(*itertools.product(range(2), (1, 0), (1, 0)), strict=True)
    )
    inputs = {"x": np.sqrt(2.0) * np.eye(2)[x]}

    def reduction(p, strengths):
        weights = np.where(open_h, p, 1 - p) * np.where(open_g, p, 1 - p) / 2
        targets = {"y": inputs["x"] * strengths}
        gates = {"h": open_h.astype(float), "g": open_g.astype(float)}
        return gdln.reduce(graph, gdln.GatedData(inputs, targets, gates, weights=weights))

    start = {"x->h": 0.3, "h->y": 0.4, "x->g": 0.5, "g->y": 0.6}
    # With p = 1 three of four patterns have weight 0, as in data in which all gates are open.
    setup = own.of_reduction(reduction(1.0, [2.0, 1.0]), start, title="", labels={})
    first = {p.key: p.value for p in setup.parameters}
    assert [p.key for p in setup.parameters] == [
        "b0",
        "b0.1",
        "b0.2",
        "s1",
        "s2",
        "rate.1",
        "rate.2",
        "p",
    ]
    values = first | {"p": 0.7, "s1": 1.5, "s2": 0.5, "b0.1": 2.0}
    data = {
        "system": dataclasses.asdict(setup.system),
        "parameters": [parameter_data(p) for p in setup.parameters],
        "values": values,
    }
    expression = (
        "(c => reduced.losses(c, reduced.products(c, c.x0)))"
        "(reduced.coefficients(data.system, data.parameters, data.values))"
    )
    (page,) = js(expression, data)
    assert "x→h→y" in setup.parameters[1].label
    moved = start | {"x->h": 0.6, "h->y": 0.8}
    assert page == pytest.approx(float(reduction(0.7, [3.0, 0.5]).loss(moved)), rel=1e-12)
