"""Effort over learning: the law (theory#effort), its extremals, and descent from several starts.

Reference values were computed independently of this package, in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import gdln_jax as gdln
from gdln_jax import control

# One mode, two balanced layers, s = d = 1, a(0) = 0.01.
JUMP, BETA = 2.134014594923, 0.25


@pytest.fixture(scope="module")
def mode():
    data = gdln.GatedData({"x": np.eye(1)}, {"y": np.eye(1)})
    return gdln.reduce(gdln.Graph.chain([1, 1, 1]), data)


@pytest.fixture(scope="module")
def three(mode):
    return control.extremals(mode, 0.1, JUMP, beta=BETA)


def test_the_best_extremal_jumps_between_two_folds(mode):
    found = control.folds(mode, 0.1, beta=BETA)
    wanted = [[0.6552365876, 2.4353207272], [1.8716413911, 2.0174901852]]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)
    np.testing.assert_allclose(control.jumps(mode, 0.1, beta=BETA), [JUMP], rtol=0, atol=1e-8)
    # Time goes as the root of beta; a(0) = 1e-4 has a long plateau.
    far = control.jumps(mode, 0.01, beta=1.0)
    np.testing.assert_allclose(far, [9.036708890115], rtol=0, atol=1e-8)


def test_three_extremals_at_the_jump(three):
    wanted = [  # spent, cost, g(0), l(T)
        (0.279755344204, 1.042093981004, 0.241115918078, 0.482782889256),
        (1.407232741591, 1.060441180676, 0.995479014146, 0.366177691549),
        (2.255852529216, 1.042093981004, 1.683833735834, 0.135637993758),
    ]
    found = [(e.spent, e.cost, float(e.effort(0.0)), e.loss_end) for e in three]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)
    assert [e.is_minimum for e in three] == [True, False, True]


def test_shooting_from_their_effort_ends_at_none(three):
    # tau a' = 2 a (1 - a) g, beta g' = -|l'|^2 = -2 a (1 - a)^2: independent of the law.
    def velocity(_, y):
        a, g = y
        return [2 * a * (1 - a) * g, -2 * a * (1 - a) ** 2 / BETA]

    ts = np.linspace(0, JUMP, 7)
    for one in three:
        start = [0.01, float(one.effort(0.0))]
        run = solve_ivp(velocity, (0, JUMP), start, "DOP853", ts, rtol=1e-13, atol=1e-15)
        a, g = run.y
        assert abs(g[-1]) < 1e-10
        np.testing.assert_allclose(one.effort(ts), g, rtol=0, atol=1e-9)
        np.testing.assert_allclose(one.loss(ts), (1 - a) ** 2 / 2, rtol=0, atol=1e-9)
        assert control.law_residual(ts, one.effort(ts), one.loss(ts), beta=BETA) < 1e-12
        assert control.law_residual(ts, one.effort(ts), one.loss(ts), beta=2 * BETA) > 0.01


def test_without_a_plateau_there_are_no_folds(mode):
    assert control.folds(mode, np.sqrt(0.03), beta=BETA).shape == (0, 2)
    assert control.jumps(mode, np.sqrt(0.03), beta=BETA).shape == (0,)
    assert len(control.extremals(mode, np.sqrt(0.03), JUMP, beta=BETA)) == 1
    # Folds exist below a(0) = 0.025599.
    assert len(control.folds(mode, np.sqrt(0.0255), beta=BETA)) == 2
    assert len(control.folds(mode, np.sqrt(0.0257), beta=BETA)) == 0


def test_a_quotient_has_the_extremals_of_its_reduction(mode, three):
    # Both layers are one class, so that its metric is 2.
    quotient = mode.quotient(0.1)
    assert quotient.rates.tolist() == [0.5]
    found = control.extremals(quotient, None, JUMP, beta=BETA)
    assert [e.spent for e in found] == pytest.approx([e.spent for e in three], abs=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"T": -1.0}, "T is -1"),
        ({"beta": 0.0}, "beta is 0"),
        ({"T": 1e3, "most": 5.0}, "pass a larger most"),
        ({"T": 1e9}, "pass a smaller T"),
    ],
)
def test_what_has_no_extremals_is_refused(mode, change, message):
    given = {"dynamics": mode, "b0": 0.1, "T": 2.0, "beta": BETA} | change
    with pytest.raises(ValueError, match=message):
        control.extremals(**given)


# ---------------------------------------------------------------- direct optimisation
# l = l0 - s.a + a.D.a/2 with a_k the product of the strengths of path k, M b' = -g l'.
def system(beta, b0, paths, s, d, metric=(1.0,), l0=None):
    """As arrays for four strengths and two paths."""
    uses = np.zeros((2, 4), bool)
    for k, path in enumerate(paths):
        uses[k, list(path)] = True
    strengths, moments = np.zeros(2), np.eye(2)
    strengths[: len(s)] = s
    moments[: len(s), : len(s)] = np.diag(d) if np.ndim(d) == 1 else d
    b = np.append(b0, np.zeros(4 - len(b0)))
    best = strengths @ np.linalg.solve(moments, strengths) / 2
    rate = 1 / np.resize(metric, len(b0))
    rate = np.append(rate, np.ones(4 - len(b0)))
    used = np.arange(2) < len(s)
    return beta, b, uses, used, strengths, moments, rate, best if l0 is None else l0


ROOTS = np.sqrt([7, 3]) / 4
FIVE = {  # residuals for N = 50, 100, 200
    "chain of two layers": (
        system(0.5, [0.4] * 4, [(0, 1), (2, 3)], ROOTS, [0.25, 0.25]),
        (0.071707, 0.0383116, 0.0198479),
    ),
    "chain of three layers": (
        system(0.1, [0.4, 0.5, 0.6], [(0, 1, 2)], [1.0], [1.0]),
        (0.152397, 0.0855852, 0.0456973),
    ),
    "XoR, four paths": (
        system(0.2, [0.4, 0.4], [(0, 1)], [np.sqrt(2)], [2.0], (4.0,)),
        (0.0299834, 0.0153238, 0.0077479),
    ),
    "routing, quotient": (
        system(0.2, [0.5, 0.6, 0.5], [(0, 1, 2)], [1.2], [0.8], (3, 1, 3)),
        (0.101278, 0.0548587, 0.0286493),
    ),
    "late fusion": (
        system(0.2, [0.3, 0.4, 0.5, 0.2], [(0, 1), (2, 3)], [1, 0.6], [[1, 0.3], [0.3, 1]]),
        (0.1056673, 0.0570684, 0.0297608),
    ),
}
STEPS = 200


def path(efforts, dt, args):
    """Losses at all steps of Euler's method; those of length 0 change nothing."""
    _, b0, uses, used, s, d, rate, l0 = args

    def loss(b):
        a = jnp.where(used, jnp.prod(jnp.where(uses, b, 1.0), axis=1), 0.0)
        return l0 - s @ a + a @ d @ a / 2

    def step(b, given):
        g, dt = given
        value, slope = jax.value_and_grad(loss)(b)
        return b - dt * g * rate * slope, value

    end, losses = jax.lax.scan(step, b0, (efforts, dt))
    return jnp.append(losses, loss(end))


def cost(efforts, dt, args):
    return dt @ (path(efforts, dt, args)[:-1] + args[0] / 2 * efforts**2)


@jax.jit
def residuals(efforts, dt, args):
    """Of the law, and of the law with beta for beta/2."""
    ts = jnp.concatenate([jnp.zeros(1), jnp.cumsum(dt)])
    efforts = jnp.where(dt > 0, efforts, 0.0)
    losses = path(efforts, dt, args)
    return [control.law_residual(ts, efforts, losses, beta=k * args[0]) for k in (1, 2)]


QUICK = "chain of two layers", "routing, quotient"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FIVE]
)
def test_the_law_holds_to_first_order_in_the_step(name):
    args, wanted = FIVE[name]
    args = jax.tree.map(jnp.asarray, args)
    found = []
    for count in (50, 100, 200):
        dt = jnp.where(jnp.arange(STEPS) < count, 4.0 / count, 0.0)
        run = control.optimise(cost, jnp.ones((1, STEPS)), steps=60, args=(dt, args))
        law, other = (float(r) for r in residuals(run.controls[0], dt, args))
        found.append(law)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    ratios = np.divide(found[:-1], found[1:])
    assert np.all((ratios >= 1.7) & (ratios <= 2.1))
    assert other > 0.75


@pytest.mark.slow
def test_a_mixture_of_tasks_and_a_gate_over_time():
    # Through the full dynamics. Of strengths 1 and 0.2 the mixture for the first is the first
    # alone, since growth increases with the strength; a gate on a second path to the same mode
    # takes from the first path, so that for the first path it is closed throughout.
    edges = [("x", "p"), ("x", "q"), ("p", "y"), ("q", "y")]
    graph = gdln.Graph({"x": 1, "p": 1, "q": 1, "y": 1}, edges)
    net = gdln.GatedNetwork(graph, {name: np.full((1, 1), 0.3) for name in graph.edge_index})
    one = np.ones((1, 1))
    first, second = (gdln.GatedData({"x": one}, {"y": s * one}) for s in (1.0, 0.2))

    def descended(loss, control):
        def step(net, now):
            slope = jax.grad(loss)(net, now)
            return jax.tree.map(lambda w, g: w - 0.2 * g, net, slope), None

        return jax.lax.scan(step, net, jax.nn.sigmoid(control))[0]

    def mixed(net, share):
        return share * gdln.mse(net, first) + (1 - share) * gdln.mse(net, second)

    def gated(net, gate):
        return gdln.mse(net, gdln.GatedData({"x": one}, {"y": one}, node_gates={"q": gate[None]}))

    def cost_of_mixture(control):
        return gdln.mse(descended(mixed, control), first)

    def cost_of_gate(control):
        weights = descended(gated, control).weights
        return -(weights["p->y"] @ weights["x->p"])[0, 0]

    starts = jnp.stack([jnp.zeros(12), jnp.linspace(-1.0, 1.0, 12)])
    for cost, best in ((cost_of_mixture, 1.0), (cost_of_gate, 0.0)):
        found = control.optimise(cost, starts, steps=60)
        bound = cost(jnp.full(12, 50.0 if best else -50.0))
        np.testing.assert_allclose(found.costs, bound, rtol=0, atol=1e-4)
        assert np.all(found.costs >= bound)
        np.testing.assert_allclose(jax.nn.sigmoid(found.controls)[:, :-1], best, rtol=0, atol=0.02)
