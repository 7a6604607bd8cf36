"""Races read off a `Reduction`: the same curves as the reduced ODE and as full networks.

What is held against: `Reduction.solve` and `gradient_flow`, to 1e-9; the closed moments of
`tasks.multiview`; E16's overlap -1/(C-1) between the frames of contexts.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax import (
    GatedData,
    GatedNetwork,
    Graph,
    Reduction,
    gradient_flow,
    init,
    race,
    reduce,
    tasks,
)


def _strengths(model: race.Pathways, u0: np.ndarray) -> dict[str, float]:
    """All edges of pathway m start at u0[m]."""
    assert model.paths is not None
    return {e: float(u) for path, u in zip(model.paths, u0, strict=True) for e in path}


def _assert_agree(reduction: Reduction, u0: np.ndarray, ts: np.ndarray, tau: float = 1.0) -> None:
    """Path products by the race, by the reduced ODE, and from the weights of the full network."""
    races = [race.Pathways.from_reduction(reduction, k) for k in range(reduction.modes)]
    b0 = _strengths(races[0], u0)
    reduced = reduction.solve(b0, ts, tau=tau, rtol=1e-12)
    net = GatedNetwork.init(reduction.graph, init.decoupled(reduction, b0), key=jax.random.key(0))
    assert isinstance(reduction.source, GatedData)
    flow = gradient_flow(net, reduction.source, ts, tau=tau, rtol=1e-12, atol=1e-14)
    frames = reduction.frames
    explained = np.zeros(len(ts))
    for k, model in enumerate(races):
        assert model.paths is not None
        a = np.asarray(model.solve(u0**model.depth, ts, tau=tau))
        explained += np.asarray(jax.vmap(model.loss)(jnp.asarray(a)))
        for m, path in enumerate(model.paths):
            product = np.prod([reduced.b[e][:, k] for e in path], axis=0)
            np.testing.assert_allclose(a[:, m], product, atol=1e-9)
            whole = np.asarray(flow.models.weights[path[0]])
            for e in path[1:]:
                whole = np.asarray(flow.models.weights[e]) @ whole
            u, v = frames[path[-1]][0][:, k], frames[path[0]][1][:, k]
            found = np.einsum("y,tyx,x->t", u, whole, v)
            np.testing.assert_allclose(a[:, m], found, atol=1e-9)
    np.testing.assert_allclose(flow.losses - flow.losses[0], explained - explained[0], atol=1e-9)


def test_correlated_views_that_come_and_go():
    task = tasks.multiview(3, 2, correlation=0.3, presence=[0.7, 0.5], strengths=[1, 0.8], width=4)
    reduction = reduce(task.graph, task.data)
    model = race.Pathways.from_reduction(reduction, 2)
    np.testing.assert_allclose(model.S, task.meta["s"], rtol=1e-12)
    np.testing.assert_allclose(model.D, task.meta["d"], rtol=1e-12)
    assert not model.coincides_with_lotka_volterra()
    _assert_agree(reduction, np.array([0.2, 0.25]), np.array([0.0, 3.0, 9.0, 30.0]), 2.0)


@pytest.mark.parametrize("layers", [1, 2])
def test_views_that_always_occur_together_in_deep_pathways(layers: int):
    """From here R's equation: L = 2 coincides, L = 3 does not."""
    task = tasks.multiview(2, 3, strengths=[1, 0.9, 0.8], width=3, hidden_layers=layers)
    reduction = reduce(task.graph, task.data)
    model = race.Pathways.from_reduction(reduction)
    assert model.depth == layers + 1
    assert model.coincides_with_lotka_volterra() is (layers == 1)
    assert model.coincides_with_lotka_volterra(any_depth=True)
    _assert_agree(reduction, np.array([0.3, 0.31, 0.33]), np.array([0.0, 2.0, 6.0, 20.0]))


def test_contexts_overlap_between_frames_and_tie():
    """E16: U_p^T U_j = -1/(C-1), Sigma^x(j,p) = (C-2)/(C-1) Sigma^x(p,p); starts are equal."""
    contexts = 4
    task = tasks.semantic_contexts(contexts, residual=True, width=8)
    reduction = reduce(task.graph, task.data)
    model = race.Pathways.from_reduction(reduction)
    own = float(model.D[0, 0])
    wanted = np.full((contexts, contexts), -own * (contexts - 2) / (contexts - 1) ** 2)
    np.fill_diagonal(wanted, own)
    np.testing.assert_allclose(model.D, wanted, rtol=1e-10)
    # Together the pathways see D/(C-1), which is E16's effective factor.
    np.testing.assert_allclose(model.D.sum(axis=1), own / (contexts - 1), rtol=1e-10)
    _assert_agree(reduction, np.full(contexts, 0.3), np.array([0.0, 2.0, 6.0, 20.0]))


def test_copies_of_a_pathway_count_each():
    """x -> h_m -> y three times with equal gates: D is 1 everywhere, and each learns a third."""
    nodes = {"x": 2, "h0": 2, "h1": 2, "h2": 2, "y": 2}
    edges = [pair for m in range(3) for pair in itertools.pairwise(["x", f"h{m}", "y"])]
    data = GatedData({"x": np.eye(2)}, {"y": np.diag([1.0, 0.5])})
    reduction = reduce(Graph(nodes, edges), data)
    for k in range(2):
        model = race.Pathways.from_reduction(reduction, k)
        np.testing.assert_allclose(model.D, np.full((3, 3), 0.5), rtol=1e-12)
        limit = np.asarray(model.limit([0.01] * 3))
        np.testing.assert_allclose(limit, float(model.S[0] / model.D[0, 0]) / 3, rtol=1e-12)


def test_pathways_without_the_mode_are_left_out():
    """One pathway sees the second feature only: it takes no part in the first's race."""
    nodes = {"x": 2, "z": 1, "h0": 2, "h1": 2, "y": 2}
    edges = [("x", "h0"), ("z", "h1"), ("h0", "y"), ("h1", "y")]
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    data = GatedData({"x": x, "z": x[:, 1:]}, {"y": np.diag([1.0, 0.5])})
    reduction = reduce(Graph(nodes, edges), data)
    sizes = sorted(len(race.Pathways.from_reduction(reduction, k).S) for k in range(2))
    assert sizes == [1, 2]


def test_limit_is_differentiable_where_it_is_unique():
    """By finite differences, with one pathway that dies; vmap and jit give the same numbers."""
    S, D = (
        jnp.array([1.0, 0.5, 0.6]),
        jnp.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.1], [0.0, 0.1, 1.0]]),
    )

    def third(S, D):
        return race.Pathways(S, (D + D.T) / 2).limit()[2] ** 2

    by_S, by_D = jax.jit(jax.grad(third, argnums=(0, 1)))(S, D)
    h = 1e-6
    for k in range(3):
        known = (third(S.at[k].add(h), D) - third(S.at[k].add(-h), D)) / (2 * h)
        assert float(by_S[k]) == pytest.approx(float(known), abs=1e-8)
    known = (third(S, D.at[2, 2].add(h)) - third(S, D.at[2, 2].add(-h))) / (2 * h)
    assert float(by_D[2, 2]) == pytest.approx(float(known), abs=1e-8)
    batch = jax.vmap(lambda s: race.Pathways(s, D).limit())(jnp.stack([S, S[::-1]]))
    np.testing.assert_allclose(batch[1], race.Pathways(S[::-1], D).limit(), rtol=1e-12)
    together = jax.jit(lambda s: race.Pathways(s, jnp.outer(s, s)).limit(s))(S)
    assert np.isnan(np.asarray(together)).all()
    alone = jax.jit(lambda a: race.Pathways(S, D).limit(a))(jnp.array([0.0, 0.1, 0.0]))
    np.testing.assert_allclose(alone, [0.0, 0.5, 0.0], atol=1e-15)


def _reduced(task: tasks.Task) -> Reduction:
    return reduce(task.graph, task.data)


def _skip() -> Reduction:
    data = GatedData({"x": np.eye(2)}, {"y": np.eye(2)})
    return reduce(Graph({"x": 2, "h": 2, "y": 2}, [("x", "h"), ("h", "y"), ("x", "y")]), data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: race.Pathways.from_reduction(_reduced(tasks.routing(3, 2))), "share the edge"),
        (lambda: race.Pathways.from_reduction(_skip()), "1, 2 weight layers"),
        (lambda: race.Pathways.from_reduction(_reduced(tasks.multiview(2, 2)), 2), "has 2"),
        (lambda: race.Pathways.from_reduction(_reduced(tasks.multiview(2, 2)), -1), "mode is -1"),
        (
            lambda: race.Pathways.from_reduction(
                reduce(*_contexts_with_common(), on_inexact="warn")
            ),
            "meets mode",
        ),
        (
            lambda: race.Pathways.from_reduction(
                reduce(*_contexts_with_common(), on_inexact="coupled")
            ),
            "coupled reduction",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::gdln_jax.InexactReductionWarning")
def test_what_is_no_race_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def _contexts_with_common() -> tuple[Graph, GatedData]:
    task = tasks.semantic_contexts(3, width=4)
    assert isinstance(task.data, GatedData)
    return task.graph, task.data
