"""`Staircase.times` by strengths and start, to first order (theory#saddles).

Known answers: differences of `saddles` at other strengths, of fourth order, and derivatives of the
closed forms `exact.chain_blow_up` and `exact.fusion_times`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from saddle_systems import Paths, chain, fusion

import gdln_jax as gdln
from gdln_jax import exact, tasks

LATE = (1, 0.9, 0.8, 1.1)
A, B, S = ("xA", "y"), ("xB", "y"), ("x", "y")
EPS = 1e-4


def differences(times, h=2e-3):
    """Derivative at 0 of fourth order in h."""
    near, far = (times(k * h) - times(-k * h) for k in (1, 2))
    return (8 * near - far) / (12 * h)


def times_of(system, c):
    return np.asarray(gdln.saddles(system.reduction, system.start(c)).times(EPS))


def start(system, c):
    """Strengths by edge, which may be traced."""
    return {f"{a}->{b}": value for (a, b), value in zip(system.edges, c, strict=True)}


@pytest.fixture(scope="module")
def late():
    """Late fusion of two modalities, and its staircase."""
    system = fusion((1, 0.6), 0.3)
    return system, gdln.saddles(system.reduction, system.start(LATE))


def times(late):
    """Times by strengths and start."""
    system, staircase = late
    return lambda s, c: staircase.times(EPS, strengths={A: s[0], B: s[1]}, c=start(system, c))


@pytest.mark.slow  # compiles derivatives
def test_late_fusion_by_strengths_and_start(late):
    """The orbit to the first plateau, and what is carried along it, move with the strengths."""
    _, staircase = late
    along = np.array([1.0, -0.5]), np.array([0.3, -0.2, 1.0, 0.4])

    def moved(x):
        s, c = np.array([1, 0.6]) + x * along[0], LATE + x * along[1]
        return times_of(fusion(s.tolist(), 0.3), c)

    found, slope = jax.jvp(times(late), (jnp.array([1, 0.6]), jnp.array(LATE)), along)
    np.testing.assert_allclose(found, staircase.times(EPS), rtol=1e-12)
    np.testing.assert_allclose(slope, differences(moved), rtol=1e-6)


@pytest.mark.slow  # compiles four programs
def test_forwards_backwards_compiled_and_in_batches(late):
    f, staircase = times(late), late[1]
    here, along = (jnp.array([1, 0.6]), jnp.array(LATE)), (jnp.ones(2), jnp.ones(4))
    _, slope = jax.jit(lambda *x: jax.jvp(f, x, along))(*here)
    back = jax.jit(jax.jacrev(f, argnums=(0, 1)))(*here)
    np.testing.assert_allclose(back[0].sum(1) + back[1].sum(1), slope, rtol=1e-12)
    many = jax.vmap(lambda x: f(here[0] + x, here[1] + x))(jnp.array([0.0, 1e-6]))
    np.testing.assert_allclose((many[1] - many[0]) / 1e-6, slope, rtol=1e-6)
    # theta beside strengths.
    thetas = jax.jacfwd(lambda e: staircase.times(e, strengths={A: 1.0}))(EPS)
    np.testing.assert_allclose(-EPS * thetas, [1, 7 / 3], rtol=1e-9)


def test_other_events_are_refused(late):
    """B before A; and a balanced B whose sign flips, which is never learned."""
    _, staircase = late
    with pytest.raises(ValueError, match=r"follows the events of its staircase.*are others\."):
        staircase.times(EPS, strengths={B: 1.5})
    flipped = fusion((1, 0.6), 0.9)
    staircase = gdln.saddles(flipped.reduction, flipped.start(LATE))
    with pytest.raises(ValueError, match="are others"):
        staircase.times(EPS, c=flipped.start((1, 0.9, 1, 1)))


@pytest.mark.slow  # compiles a program
def test_times_at_other_known_strengths_are_of_first_order(late):
    errors = []
    for x in (0.01, 0.005):
        known = times_of(fusion((1, 0.6 + x), 0.3), LATE)
        errors.append(abs(late[1].times(EPS, strengths={B: 0.6 + x}) - known)[1])
    assert 3.5 < errors[0] / errors[1] < 4.5


def test_what_times_refuses(late):
    system, staircase = late
    with pytest.raises(ValueError, match=r"\('xC', 'y'\); those of the reduction: \('xA'"):
        staircase.times(EPS, strengths={("xC", "y"): 1.0})
    with pytest.raises(ValueError, match=r"has shape \(2,\); give one number, or one per mode"):
        staircase.times(EPS, strengths={A: np.ones(2)})
    with pytest.raises(ValueError, match="is nan; it must be finite"):
        staircase.times(EPS, strengths={A: np.nan})
    with pytest.raises(ValueError, match="not both"):
        staircase.times(EPS, strengths={A: 1.0}, reduction=system.reduction)
    with pytest.raises(ValueError, match="same graph and gates"):
        staircase.times(EPS, reduction=chain(2).reduction)
    with pytest.raises(ValueError, match="lacks edge"):
        staircase.times(EPS, c={"xA->hA1": 1.0})
    with pytest.raises(ValueError, match="not made by saddles"):
        gdln.Staircase(staircase.events, staircase.end).times(EPS, c=1.0)


@pytest.mark.slow  # compiles a system
def test_an_event_that_products_have_started_has_no_derivative():
    """B starts at (1, -1): the product of a longer path moves it off that line."""
    routes = [["xA", "hA", "y1"], ["xB", "h", "y1"], ["xB", "h", "g", "y2"]]
    system = Paths(routes, [[2, 1], [0, 0.5]], [[1, 0.3], [0.3, 1]])
    staircase = gdln.saddles(system.reduction, system.start((1, 0.9, 1, -1, 1, 1)))
    with pytest.raises(ValueError, match=r"event 2 has no derivative .* max_events=1\)"):
        jax.grad(lambda x: staircase.times(EPS, strengths={("xA", "y1"): x})[0])(2.0)


@pytest.mark.slow  # compiles a program
def test_a_chain_of_two_layers_with_a_wrong_sign():
    system, c, along = chain(2), np.array([1, -0.6]), np.array([0.5, 1.0])
    staircase = gdln.saddles(system.reduction, system.start(c))
    slope = jax.jacfwd(
        lambda x: staircase.times(EPS, strengths={S: 1.3 + x}, c=start(system, c + x * along))
    )(0.0)
    known = differences(lambda x: times_of(chain(2, s=1.3 + x), c + x * along))
    np.testing.assert_allclose(slope, known, rtol=1e-6)


@pytest.mark.slow  # each compiles a program
@pytest.mark.parametrize(
    ("c", "counts"),
    [([1, -0.6, 1.7], [1, 1, 1]), ([0.9, 0.9, 1.7], [2, 1])],
    ids=["wrong sign", "multiplicity 2"],
)
def test_a_chain_of_three_layers_against_its_closed_form(c, counts):
    """Of two equal edges there is one class, of multiplicity 2; the mean of a class counts."""
    system, edges = chain(3), np.repeat(np.arange(len(counts)), counts)
    staircase = gdln.saddles(system.reduction, system.start(c))

    def predicted(s, c):
        return EPS * staircase.times(EPS, strengths={S: s}, c=start(system, c[edges]))[0]

    def closed(s, c):
        return exact.chain_blow_up(s, c, multiplicities=counts, sizes=counts)

    here = jnp.asarray(1.3), jnp.asarray(c)[np.cumsum(counts) - 1]
    found, known = (jax.jacrev(f, argnums=(0, 1))(*here) for f in (predicted, closed))
    np.testing.assert_allclose(found[0], known[0], rtol=1e-8)
    np.testing.assert_allclose(found[1], known[1], rtol=1e-8)


@pytest.mark.slow  # each compiles a program
@pytest.mark.parametrize(("depth", "separate"), [(3, 3), (3, 2), (4, 3)])
def test_deep_fusion_against_its_closed_form(depth, separate):
    """Products after products, and what a shared layer couples to a product."""
    system, eps = fusion((1, 0.6), 0.3, depth, separate), 0.01
    c = [np.sqrt(2) if a[0] == "s" else 1.0 for a, _ in system.edges]
    staircase = gdln.saddles(system.reduction, system.start(c))

    def closed(s):
        return jnp.stack(
            exact.fusion_times(eps, s[0], s[1], 1.0, 1.0, 0.3, depth=depth, fusion=separate)
        )

    found = jax.jacfwd(lambda s: staircase.times(eps, strengths={A: s[0], B: s[1]}))
    here = jnp.array([1, 0.6])
    np.testing.assert_allclose(found(here), jax.jacfwd(closed)(here), rtol=1e-6, atol=1e-6)


@pytest.mark.slow  # compiles three programs
def test_routing_by_its_quotient():
    m, s, d, c1, c2 = 3, 1.2, 0.8, 0.9, 1.1
    base = np.array([[np.sqrt(d)]]), np.array([[s / np.sqrt(d)]])
    task = tasks.routing(m, 2, base=base, width=1)
    reduction = gdln.reduce(task.graph, task.data)

    def at(c1, c2):
        return {e.name: c2 if e.name == "h1->h2" else c1 for e in task.graph.edges}

    def targets(reduction):
        return [table.target for table in reduction.mode_data.outputs if table is not None]

    staircase = gdln.saddles(reduction, at(c1, c2))

    def predicted(x):
        other = eqx.tree_at(targets, reduction, [t * x[0] / s for t in targets(reduction)])
        return 0.01 * staircase.times(0.01, reduction=other, c=at(x[1], x[2]))[0]

    def closed(x):
        root = jnp.sqrt(m * x[1] ** 2 - x[2] ** 2)
        return m / (x[0] * root) * (jnp.pi / 2 - jnp.arctan(x[2] / root))

    x = jnp.array([s, c1, c2])
    np.testing.assert_allclose(jax.grad(predicted)(x), jax.grad(closed)(x), rtol=1e-7)
