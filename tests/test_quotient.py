"""The quotient: classes that the papers state, found by the code itself (issue 3 point 3).

Held against: N Eq. 13-17 and E17 in closed form (`gdln.exact`), the full reduction, and the values
of reference.json.
"""

from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reduction_parts import classes, compiled_solves

import gdln_jax as gdln
from gdln_jax import exact, tasks

# Equal values by chance at the points that are tried first.

WIDTH = 5
S = np.array([np.sqrt(185), np.sqrt(41), 3, 3]) / 4
D = 0.25


def routing(m, k, **options):
    return tasks.routing(m, k, width=WIDTH, key=jax.random.key(3), **options)


def layer(edge):
    return 0 if edge.source.startswith("x") else 2 if edge.target.startswith("y") else 1


def layered(graph, first, hidden, third):
    """Start per layer of a routing or sharing network."""
    return {e.name: (first, hidden, third)[layer(e)] for e in graph.edges}


def layers_of(quotient):
    """Which layers each class holds."""
    return [sorted({layer(quotient.graph.edge(name)) for name in c}) for c in quotient.classes]


def quotient_of(task, b0):
    return gdln.reduce(task.graph, task.data).quotient(b0)


# ---------------------------------------------------------------- N Eq. 13-14
PATTERNS = [
    pytest.param(7, 4, "cyclic", id="cyclic-7"),
    pytest.param(7, 3, "random_biregular", id="biregular-7"),
    pytest.param(100, 5, "random_biregular", id="biregular-100"),
]


@pytest.mark.parametrize(("m", "k", "pattern"), PATTERNS)
def test_routing_has_two_or_three_classes(m, k, pattern):
    """First and third layers in one class if they start equal; rates 1/M, 1, 1/M (Eq. 13)."""
    task = routing(m, k, pattern=pattern, compact=True)
    reduction = gdln.reduce(task.graph, task.data)
    apart = reduction.quotient(layered(task.graph, 0.2, 0.5, 0.3))
    assert layers_of(apart) == [[0], [1], [2]]
    np.testing.assert_allclose(apart.rates, [1 / m, 1, 1 / m], rtol=1e-15)
    together = reduction.quotient(layered(task.graph, 0.2, 0.5, 0.2))
    assert layers_of(together) == [[0, 2], [1]]
    np.testing.assert_allclose(together.rates, [1 / (2 * m), 1], rtol=1e-15)
    assert f"2 classes of {2 * m + 1} edges" in repr(together)
    # The hidden layer stays apart even if it starts equal.
    assert len(reduction.quotient(0.2).classes) == 2
    # Equinox lists the entries of a static field at every result: names of edges must be one.
    for shares in (together, together.by_edge(together.x0)):
        static = [getattr(shares, f.name) for f in fields(shares) if f.metadata.get("static")]
        assert len(jax.tree.leaves(static)) == len(static)


def test_the_gradient_on_classes_is_that_of_eq_13():
    """-dl/dx of the product b3 b2 b1 with S(p) = s/(K M), K M trained paths."""
    q = quotient_of(routing(7, 4), layered(routing(7, 4).graph, 0.2, 0.5, 0.3))
    x = np.array([[0.7] * 4, [1.1] * 4, [0.4] * 4])
    slope = -np.asarray(jax.jit(jax.grad(q.loss))(x)) * np.asarray(q.rates)[:, None]
    b1, b2, b3 = x
    error = S - D * b1 * b2 * b3
    known = np.stack([b3 * b2 * error / 7, b3 * b1 * error, b2 * b1 * error / 7])
    np.testing.assert_allclose(slope, known, rtol=1e-13)


def test_patterns_that_are_regular_in_rows_only_do_not_collapse():
    """E7. M = 7, K = 3: 14 classes of 15 edges, as many as the pattern has."""
    task = routing(7, 3, pattern="rows_only")
    q = quotient_of(task, layered(task.graph, 0.2, 0.5, 0.3))
    # The coarsest partition that is equitable, by colour refinement of the pattern alone.
    assert len(q.classes) == 1 + len(set(refined(task.meta["pattern"])))
    assert len(q.classes) == 14


def refined(pattern):
    """Colours of inputs and outputs of a bipartite graph, refined until stable."""
    rows, columns = pattern.shape
    colours = [("in",)] * rows + [("out",)] * columns
    graph = np.block([[np.zeros((rows, rows)), pattern], [pattern.T, np.zeros((columns, columns))]])
    for _ in range(rows + columns):
        seen = [
            (c, tuple(sorted(colours[j] for j in np.flatnonzero(graph[i]))))
            for i, c in enumerate(colours)
        ]
        numbers = {s: n for n, s in enumerate(sorted(set(seen)))}
        colours = [(numbers[s],) for s in seen]
    return colours


def test_one_broken_route_breaks_the_classes():
    """A biregular pattern without one of its routes: Eq. 13-14 fail, and the classes say so."""
    pattern = routing(7, 4).meta["pattern"].copy()
    pattern[0, 0] = 0
    task = tasks.routing(7, pattern=pattern, width=WIDTH)
    q = quotient_of(task, layered(task.graph, 0.2, 0.5, 0.3))
    assert len(q.classes) > 3
    assert len(q.classes) == 1 + len(set(refined(pattern)))


def test_permuting_domains_permutes_the_answer():
    rng = np.random.default_rng(0)
    pattern = np.array(routing(6, 2, pattern="rows_only").meta["pattern"])
    task = tasks.routing(6, pattern=pattern, width=WIDTH)
    b0 = layered(task.graph, 0.2, 0.5, 0.3)
    q = quotient_of(task, b0)
    rows, columns = rng.permutation(6), rng.permutation(6)
    other = tasks.routing(6, pattern=pattern[np.ix_(rows, columns)], width=WIDTH)
    p = quotient_of(other, b0)
    # Domain i of the second is domain rows[i] (columns[i]) of the first.
    name = {f"x{i}->h1": f"x{rows[i]}->h1" for i in range(6)}
    name |= {f"h2->y{j}": f"h2->y{columns[j]}" for j in range(6)}
    name |= {"h1->h2": "h1->h2"}
    moved = {frozenset(name[e] for e in c) for c in p.classes}
    assert moved == {frozenset(c) for c in q.classes}
    ts = np.linspace(0, 20, 4)
    first, second = q.solve(ts), p.solve(ts)
    np.testing.assert_allclose(first.losses, second.losses, atol=1e-9)
    full, again = q.expand(first.b), p.expand(second.b)
    for theirs, ours in name.items():
        np.testing.assert_allclose(again[theirs], full[ours], atol=1e-9)


# ---------------------------------------------------------------- N Eq. 16-17, contexts
@pytest.mark.parametrize("p", [1, 4, 100])
def test_pathway_sharing_has_the_rates_of_eq_16_and_17(p):
    task = tasks.pathway_sharing(10, p, compact=True, width=WIDTH)
    q = quotient_of(task, layered(task.graph, 0.2, 0.5, 0.3))
    assert layers_of(q) == [[0], [1], [2]]
    np.testing.assert_allclose(q.rates, task.meta["rates"][p], rtol=1e-14)
    np.testing.assert_allclose(q.rates, [np.sqrt(p) / 100, p / 100, np.sqrt(p) / 100], rtol=1e-14)


@pytest.mark.parametrize("p", [pytest.param(1, marks=pytest.mark.slow), 100])
def test_pathway_sharing_reaches_the_reference_times(p, reference):
    """Product at s/(2d) at the times given, for modes 1, 2 and 3."""
    task = tasks.pathway_sharing(10, p, compact=True, width=WIDTH)
    q = quotient_of(task, 0.2)
    times = np.array(reference["exact"]["sharing_M10"][f"P{p}"])
    x = q.expand(q.solve(np.concatenate([[0.0], times])).b)
    edges = next(iter(task.graph.paths()))
    product = np.prod([np.asarray(x[name]) for name in edges], axis=0)
    # Mode m at its own time; half of sqrt(185), sqrt(41), 3.
    half = product[1:, :3].diagonal()
    np.testing.assert_allclose(half, 2 * S[:3], rtol=1e-8)


@pytest.mark.parametrize("contexts", [3, 4])
def test_contextual_pathways_share_one_variable(contexts, reference):
    """B_p = B_j (H App. F-G), and E17; SUM convention: time is multiplied by n C."""
    task = tasks.semantic_contexts(contexts, residual=True, width=10)
    reduction = gdln.reduce(task.graph, task.data)
    q = reduction.quotient(0.1)
    assert len(q.classes) == 1
    apart = reduction.quotient(
        {e.name: 0.1 if e.source == "items" else 0.2 for e in task.graph.edges}
    )
    assert [len(c) for c in apart.classes] == [contexts, contexts]
    np.testing.assert_allclose(apart.rates, 1 / contexts, rtol=1e-15)
    if contexts == 3:
        run = q.solve([0.0, 4.0 * 24], x0=np.sqrt(1e-5))
        known = reference["exact"]["contexts"]["C3"]
        np.testing.assert_allclose(run.x[-1, 0, [0, 1, 3]] ** 2, known, rtol=1e-8)


# ---------------------------------------------------------------- the same solution
def unequal_modes(graph):
    """A different start in every layer and mode."""
    return layered(
        graph,
        np.array([0.2, 0.1, 0.3, 0.15]),
        np.array([0.3, 0.2, 0.1, 0.25]),
        np.array([0.25, 0.15, 0.2, 0.1]),
    )


@pytest.mark.parametrize("pattern", [pytest.param("cyclic", marks=pytest.mark.slow), "rows_only"])
def test_the_quotient_solves_the_full_reduction(pattern):
    task = routing(5, 2, pattern=pattern)
    reduction = gdln.reduce(task.graph, task.data)
    b0 = unequal_modes(task.graph)
    q = reduction.quotient(b0)
    ts = np.linspace(0, 15, 4)
    full, small = reduction.solve(b0, ts), q.solve(ts)
    np.testing.assert_allclose(small.losses, full.losses, atol=1e-9)
    expanded = q.expand(small.b)
    for name, value in full.b.items():
        np.testing.assert_allclose(expanded[name], value, atol=1e-9)
    start = q.expand(q.x0)
    for name, value in b0.items():
        np.testing.assert_array_equal(start[name], value)


@pytest.mark.slow
def test_the_quotient_solves_the_full_flow():
    task = routing(7, 4)
    reduction = gdln.reduce(task.graph, task.data)
    b0 = unequal_modes(task.graph)
    ts = np.linspace(0, 12, 4)
    small = reduction.quotient(b0).solve(ts)
    full = gdln.gradient_flow(reduction.embed(b0), task.data, ts)
    np.testing.assert_allclose(small.losses, full.losses, atol=1e-9)


@pytest.mark.slow
def test_side_by_side_blocks_of_unequal_size():
    """P = 1 and P = 4 in one network race: six classes, and still the full reduction."""
    task = tasks.pathway_sharing(2, (1, 4), compact=True, width=WIDTH)
    reduction = gdln.reduce(task.graph, task.data)
    b0 = unequal_modes(task.graph)
    q = reduction.quotient(b0)
    assert sorted(len(c) for c in q.classes) == [1, 2, 2, 4, 4, 4]
    ts = np.linspace(0, 10, 4)
    full, small = reduction.solve(b0, ts), q.solve(ts)
    np.testing.assert_allclose(small.losses, full.losses, atol=1e-9)


def test_the_reference_routing_run(reference):
    """Eq. 15 with M = 7, B(0) = .2: B2 of modes 1 and 3, losses, and B2/B1, to their digits."""
    task = routing(7, 4)
    known = reference["exact"]["routing_M7_B0_0.2"]
    q = quotient_of(task, 0.2)
    ts = np.array([0.0, 1, 2, 5, 10, 20, 50])
    run = q.solve(ts)
    hidden = next(i for i, c in enumerate(q.classes) if "h1->h2" in c)
    first, third = known["mode_1_B2"], known["mode_3_B2"]
    b2 = np.asarray(run.x[:, hidden])
    np.testing.assert_allclose(b2[1:6, 0], first["B2"], rtol=1e-9)
    np.testing.assert_allclose(b2[1:, 2], third["B2"], rtol=1e-9)
    np.testing.assert_allclose(run.losses[:6], known["loss"]["L"], atol=1e-9)
    ratio = b2[-1, 0] / run.x[-1, 1 - hidden, 0]
    assert float(ratio) == pytest.approx(known["final_ratio_B2_B1_mode_1"], abs=5e-9)


def test_the_closed_form_of_routing():
    """`exact.routing_mode` for unequal layers: C = M B1(0)^2 - B2(0)^2."""
    m = 100
    task = routing(m, 4, compact=True)
    q = quotient_of(task, layered(task.graph, 0.05, 0.2, 0.05))
    ts = np.array([0.0, 20.0, 60.0, 150.0])
    run = q.solve(ts)
    c = m * 0.05**2 - 0.2**2
    known = exact.routing_mode(ts[:, None], S, D, 0.2, m, c=c)
    hidden = next(i for i, cls in enumerate(q.classes) if "h1->h2" in cls)
    np.testing.assert_allclose(run.x[:, hidden], known, rtol=1e-8)


# ---------------------------------------------------------------- what makes classes
def test_starts_that_differ_by_little_are_different():
    """Relative to themselves, also beside large ones; equal to rounding is equal."""
    task = routing(3, 3)
    reduction = gdln.reduce(task.graph, task.data)
    for small in (1e-30, 1e-3):
        b0 = layered(task.graph, small, 1.0, 3.0)
        assert len(reduction.quotient(b0).classes) == 3
        b0["x1->h1"] = small * (1 + 1e-9)
        assert len(reduction.quotient(b0).classes) == 4
        b0["x1->h1"] = small * (1 + 1e-15)
        assert len(reduction.quotient(b0).classes) == 3


def test_classes_see_differences_in_weak_modes_and_small_nodes():
    """Targets of domain 0 differ in the weakest mode by 1e-5 of the strongest one."""
    x = np.eye(4)
    y = np.array(task_targets())
    weak = y + 1e-5 * np.array([[1.0], [-1], [0], [0]]) * y.max() * (np.arange(7) == 3)

    def blocks(targets):
        inputs = {f"x{i}": np.concatenate([x * (j == i) for j in range(3)]) for i in range(3)}
        gates = {f"x{i}->h": np.repeat([float(j == i) for j in range(3)], 4) for i in range(3)}
        graph = gdln.Graph(
            {**dict.fromkeys(inputs, 4), "h": WIDTH, "y": 7},
            [*((name, "h") for name in inputs), ("h", "y")],
        )
        return graph, gdln.GatedData(inputs, {"y": np.concatenate(targets)}, {}, gates)

    same = gdln.reduce(*blocks([y, y, y])).quotient(0.1)
    assert sorted(map(len, same.classes)) == [1, 3]
    graph, data = blocks([weak, y, y])
    with pytest.warns(gdln.InexactReductionWarning):
        reduction = gdln.reduce(graph, data, on_inexact="warn")
    assert sorted(map(len, reduction.quotient(0.1).classes)) == [1, 1, 2]


def task_targets():
    data = tasks.hierarchy().data
    assert isinstance(data, gdln.GatedData)
    return data.targets["y"]


def test_verification_at_fresh_points():
    """A gradient that is equal at the first points only: later ones must still split."""
    calls = []

    def gradient(values):
        calls.append(1)
        late = 1e-3 if len(calls) > 2 else 0.0
        return values * np.array([1.0, 1.0, 1.0 + late])[:, None]

    labels = classes.refine(gradient, np.zeros(3, int), 2, np.ones(2))
    np.testing.assert_array_equal(labels, [0, 0, 1])
    assert len(calls) >= 6


def test_the_program_does_not_grow_with_the_number_of_domains():
    def sizes(m):
        task = routing(m, 4, compact=True)
        q = quotient_of(task, layered(task.graph, 0.2, 0.5, 0.3))
        return [np.shape(leaf) for leaf in jax.tree.leaves(q.program)]

    assert sizes(10) == sizes(100)


def test_solving_for_more_domains_does_not_compile_again():
    compiled = []
    for m in (10, 30):
        task = routing(m, 4, compact=True)
        quotient_of(task, layered(task.graph, 0.2, 0.5, 0.3)).solve([0.0, 3.0])
        compiled.append(compiled_solves())
    assert compiled[0] == compiled[1]


# ---------------------------------------------------------------- use
@pytest.fixture(scope="module")
def small():
    task = routing(3, 3, compact=True)
    return quotient_of(task, layered(task.graph, 0.2, 0.5, 0.3))


def test_starts_of_the_quotient(small):
    for x0 in (0.1, np.full(4, 0.1), np.full((3, 1), 0.1), np.full((3, 4), 0.1)):
        np.testing.assert_array_equal(small.solve([0.0, 1.0], x0=x0).x[0], 0.1)
    with pytest.raises(ValueError, match=r"x0 has shape \(3,\).*\(4,\) per mode"):
        small.solve([0.0, 1.0], x0=np.ones(3))
    with pytest.raises(ValueError, match="x0 holds values that are not finite"):
        small.solve([0.0, 1.0], x0=np.nan)


def test_a_start_beside_the_times_is_refused(small):
    """`quotient(b0)` was given the start; `solve(b0, ts)` is the order of `Reduction.solve`."""
    with pytest.raises(ValueError, match=r"solve\(ts\): its start was given to reduction.quotient"):
        small.solve(0.1, [0.0, 1.0])


@pytest.mark.slow
def test_the_quotient_is_differentiable_and_batched(small):
    def final(b):
        return small.solve(jnp.array([0.0, 5.0]), x0=small.x0 * b).losses[-1]

    slope = float(jax.grad(final)(1.0))
    known = float(final(1.001) - final(0.999)) / 0.002
    assert slope == pytest.approx(known, rel=1e-4)
    batch = jax.vmap(final)(jnp.array([1.0, 1.5]))
    np.testing.assert_allclose(batch, [final(1.0), final(1.5)], rtol=1e-9)


def test_quotient_needs_values(small):
    task = routing(3, 3)
    reduction = gdln.reduce(task.graph, task.data)
    with pytest.raises(ValueError, match="cannot run under jit or vmap"):
        jax.jit(lambda b: reduction.quotient(b).x0)(0.1)


def test_a_bottleneck_stays_one(small):
    """Modes that do not fit through the hidden layers have strength 0 in the quotient too."""
    task = tasks.routing(3, 3, width=2)
    q = quotient_of(task, 0.3)
    np.testing.assert_array_equal(q.x0[:, 2:], 0)
    np.testing.assert_array_equal(q.solve([0.0, 5.0], x0=0.3).x[:, :, 2:], 0)
