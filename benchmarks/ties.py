"""A training step of a tied network, of the same network untied, and of one written by hand."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

import gdln_jax as gdln
from benchmarks import measuring
from benchmarks.table import Row


def measure(quick: bool) -> list[Row]:
    """Steps of descent on a chain of four layers, the inner two with one array or with two.

    The untied network is held against jitted JAX on four matrices, the tied one against the untied
    one, in one scan each; small layers show what a step costs beside its products.
    """
    sizes = [(16, 5, 1)] if quick else [(16, 2000, 7), (256, 100, 7)]
    return [row for size in sizes for row in _of_width(*size)]


def _of_width(width: int, steps: int, repeats: int) -> list[Row]:
    edges = [("x", "h1", "A"), ("h1", "h2", "B1"), ("h2", "h3", "B2"), ("h3", "y", "C")]
    nodes = dict.fromkeys(["x", "h1", "h2", "h3", "y"], width)
    r = np.random.default_rng(0)
    x, y = (r.standard_normal((64, width)) for _ in range(2))
    data = gdln.GatedData({"x": x}, {"y": y})
    a, b, c = (r.standard_normal((width, width)) / np.sqrt(width) for _ in range(3))
    networks = [
        gdln.GatedNetwork(gdln.Graph(nodes, edges), {"A": a, "B1": b, "B2": b, "C": c}),
        gdln.GatedNetwork(
            gdln.Graph(nodes, edges, shared={"B": ["B1", "B2"]}), {"A": a, "B": b, "C": c}
        ),
    ]
    untied, tied = (_descent(gdln.mse, net, net.prepare(data), steps) for net in networks)
    matrices = [jnp.asarray(w) for w in (a, b, b, c)]
    hand = _descent(_plain, matrices, (jnp.asarray(x), jnp.asarray(y)), steps)
    cold, losses = measuring.seconds(untied)
    cold_tied, _ = measuring.seconds(tied)
    gap = float(np.max(np.abs(losses - hand()) / losses[0]))
    taken = measuring.alternate(untied, tied, hand, repeats=repeats)
    what, sizes = "steps of a chain, ", f"4 layers of {width}, 64 examples, {steps} steps"
    return [
        Row(
            f"{what}no ties", sizes, "jitted JAX, four matrices", cold, taken[0], taken[2], gap=gap
        ),
        Row(
            f"{what}two layers tied", sizes, "the same without ties", cold_tied, taken[1], taken[0]
        ),
    ]


def _descent(loss: Callable, start: PyTree, given: PyTree, steps: int) -> Callable[[], Array]:
    """Losses of `steps` steps of descent, one compiled scan."""

    @eqx.filter_jit
    def run(start: PyTree, given: PyTree) -> Array:
        def step(here: PyTree, _: None) -> tuple[PyTree, Array]:
            value, gradient = eqx.filter_value_and_grad(loss)(here, given)
            return jax.tree.map(lambda w, g: w - 1e-3 * g, here, gradient), value

        return jax.lax.scan(step, start, None, steps)[1]

    return lambda: run(start, given)


def _plain(weights: list[Array], given: tuple[Array, Array]) -> Array:
    h, y = given
    for w in weights:
        h = h @ w.T
    return 0.5 * jnp.mean(jnp.sum((y - h) ** 2, axis=1))
