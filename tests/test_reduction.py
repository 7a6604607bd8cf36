"""The reduction: exact where it says so, refused where it is not, and its dynamics (issue 3).

Held against: `mse` of the embedded network, full `gradient_flow`, the enumeration of N Eq. 10,
closed forms of SCIENCE 4 and the values of reference.json.
"""

import itertools
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from diagonalisable import diagonalisable, random_graph, two_by_two

import gdln_jax as gdln
from gdln_jax import InexactReductionError, InexactReductionWarning, tasks

# The first seeds run always, all 30 with the slow tests: each is a graph of its own to compile.
QUICK = 6
SEEDS = [pytest.param(s, marks=[] if s < QUICK else pytest.mark.slow) for s in range(30)]
EXACT = 1e-12
TIMES = np.linspace(0, 10, 6)


def system(seed):
    """Binary and Gaussian gates, distinct and repeated values, by turns."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    gates = ("binary", "normal")[seed % 2]
    data = diagonalisable(rng, graph, gates=gates, repeated=seed % 4 >= 2)
    return graph, data, rng


def random_strengths(reduction, rng, low=0.1, high=0.4):
    size = reduction.modes
    return {e.name: rng.uniform(low, high, size) for e in reduction.graph.edges}


def white_chain(strengths, *, widths=(5, 7, 6), variance=1.0, rng=None):
    """A chain of which mode m has S = strengths[m] and D = variance (or one per mode)."""
    rng = np.random.default_rng(0) if rng is None else rng
    modes = len(strengths)
    v, _ = np.linalg.qr(rng.normal(size=(widths[0], modes)))
    u, _ = np.linalg.qr(rng.normal(size=(widths[-1], modes)))
    size = np.sqrt(modes * np.broadcast_to(variance, modes))
    x = (v * size).T
    y = (u * (np.asarray(strengths) * modes / size)).T
    return gdln.Graph.chain(list(widths)), gdln.GatedData({"x": x}, {"y": y})


def mode_matrices(reduction, weights, edge):
    u, v = reduction.frames[edge]
    return jnp.einsum("tm,...ts,sn->...mn", u, weights, v)


def gap(a, b):
    """Largest difference relative to the largest number compared."""
    a, b = np.asarray(a), np.asarray(b)
    return np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)


# ---------------------------------------------------------------- exact on random systems
@pytest.mark.parametrize("seed", SEEDS)
def test_random_systems_reduce_exactly(seed):
    """Certificate 0, l(b) = L(W(b)), and the gradient without paths is N Eq. 10 by enumeration."""
    graph, data, rng = system(seed)
    reduction = gdln.reduce(graph, data)
    assert reduction.residual < EXACT
    assert reduction.ties is None
    assert reduction.modes == 3
    b = reduction.strengths_of(random_strengths(reduction, rng, 0.5, 1.5))
    full = float(gdln.mse(reduction.embed(b), data))
    assert float(reduction.loss(b)) == pytest.approx(full, rel=1e-13)
    slope = jax.grad(reduction.loss)(b)
    for name, listed in reduction.path_table().gradient(b).items():
        np.testing.assert_allclose(-slope[name], listed, atol=EXACT * gap(listed, 0 * listed + 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_reduced_flow_is_the_full_flow(seed):
    graph, data, rng = system(seed)
    reduction = gdln.reduce(graph, data)
    b0 = random_strengths(reduction, rng)
    reduced = reduction.solve(b0, TIMES)
    full = gdln.gradient_flow(reduction.embed(b0), data, TIMES)
    np.testing.assert_allclose(reduced.losses, full.losses, atol=1e-9)
    end = reduction.embed({name: value[-1] for name, value in reduced.b.items()})
    for name in end.weights:
        np.testing.assert_allclose(end.weights[name], full.final.weights[name], atol=1e-9)
