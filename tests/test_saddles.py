"""The staircase of learning from a small start (theory#saddles), against closed forms and flows.

Known answers: reference values by independent code, `exact.chain_blow_up` and
`exact.fusion_times`, and the flow of the reduction at small scales. A refusal has a flow that shows
why.
"""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from saddle_systems import Paths, chain, fusion, gated
from scipy.integrate import solve_ivp

import gdln_jax as gdln
from gdln_jax import exact, plot, tasks

LATE = (1, 0.9, 0.8, 1.1)


def saddles(system, c, **options):
    return gdln.saddles(system.reduction, system.start(c), **options)


def coefficients(staircase):
    """The coefficient of each event's last stage."""
    return [event.stages[-1][2] for event in staircase.events]


def thetas(staircase):
    return [event.theta for event in staircase.events]


def flow_times(system, c, staircase, eps):
    """Times at which the flow from eps c has half of each drop."""
    first = staircase.events[0].loss_before
    levels = [(e.loss_before + e.loss_after) / 2 - first for e in staircase.events]
    t1 = 1.3 * float(staircase.times(eps)[-1]) + 20
    return system.times(eps * np.array(c), levels, t1)


@pytest.fixture(scope="module")
def late():
    """Late fusion of two modalities, and its staircase."""
    system = fusion((1, 0.6), 0.3)
    return system, saddles(system, LATE)


# ---------------------------------------------------------------- single chains
def test_a_chain_of_two_layers_with_a_wrong_sign():
    staircase = saddles(chain(2), (1, -0.6))
    (event,) = staircase.events
    assert event.kind == "exponential"
    np.testing.assert_allclose(event.theta, 1 / 1.3, rtol=1e-12)
    np.testing.assert_allclose(event.offset, 1.137131325, atol=1e-8)
    np.testing.assert_allclose(event.rate, 1.3, rtol=1e-12)
    np.testing.assert_allclose(event.loss_before - event.loss_after, 1.3**2 / 1.4, rtol=1e-12)
    np.testing.assert_allclose(
        np.prod([np.asarray(b) for b in event.b.values()]), 1.3 / 0.7, rtol=1e-9
    )
    assert staircase.end == ("minimum",)
    assert event.modes == (1,)


def test_a_deep_chain_takes_a_power_of_the_scale():
    c = (1, -0.6, 1.7)
    (event,) = saddles(chain(3), c).events
    assert (event.kind, event.stages[0][1]) == ("power", 1.0)
    np.testing.assert_allclose(event.stages[0][2], exact.chain_blow_up(1.3, np.array(c)), rtol=1e-8)
    assert np.isnan(event.offset)


@pytest.mark.slow  # compiles three solvers
def test_routing_by_its_quotient():
    """The metric |c| counts: T* as in the closed form, 1e-6; without it 0.8629 for any M."""
    m, s, d, c1, c2 = 3, 1.2, 0.8, 0.9, 1.1
    base = np.array([[np.sqrt(d)]]), np.array([[s / np.sqrt(d)]])
    task = tasks.routing(m, 2, base=base, width=1)
    reduction = gdln.reduce(task.graph, task.data)
    c = {e.name: c2 if e.name == "h1->h2" else c1 for e in task.graph.edges}
    (event,) = gdln.saddles(reduction, c).events
    root = np.sqrt(m * c1**2 - c2**2)
    closed = m / (s * root) * (np.pi / 2 - np.arctan(c2 / root))
    np.testing.assert_allclose(event.stages[0][2], closed, rtol=1e-6)
    # All edges, and the classes, follow one flow.
    start = {k: 0.01 * v for k, v in c.items()}
    # Half of the product is learned at three quarters of the drop.
    level = jnp.asarray(event.loss_before + 3 * event.loss_after) / 4
    every = reduction.time_to(level, start, t1=400.0).time
    merged = reduction.quotient(start).time_to(level, t1=400.0).time
    np.testing.assert_allclose(every, merged, rtol=1e-10)
    np.testing.assert_allclose(0.01 * every, 1.7694467893, rtol=1e-8)


# ---------------------------------------------------------------- fusion of two modalities
def test_late_fusion(late):
    """Slopes between eps = 1e-5 and 1e-7 to 1e-4; kappa at 1e-7 to 1e-4, absolute."""
    system, staircase = late
    np.testing.assert_allclose(thetas(staircase), [1, 7 / 3], rtol=1e-10)
    kappas = [event.offset for event in staircase.events]
    np.testing.assert_allclose(kappas, [-0.389393499, -3.182849003], atol=1e-6)
    large, small = (flow_times(system, LATE, staircase, eps) for eps in (1e-5, 1e-7))
    np.testing.assert_allclose((small - large) / np.log(100), thetas(staircase), atol=1e-4)
    np.testing.assert_allclose(small, staircase.times(1e-7), atol=1e-4)
    product = [event.b["xB->hB1"] * event.b["hB1->y"] for event in staircase.events]
    np.testing.assert_allclose(product, [[0.0], [0.3296703297]], atol=1e-9)
    assert staircase.flags == ()
    # Another start has another kappa.
    (first, *_) = saddles(system, (1, 1, 0.8, 1.1)).events
    np.testing.assert_allclose(first.offset, -0.440687, atol=1e-6)


def test_the_case_whose_sign_flips():
    """Ratio 3.6 where the formula without the correction has 2.4, by the flow to 1e-6."""
    system = fusion((1, 0.3), 0.8)
    staircase = saddles(system, LATE)
    np.testing.assert_allclose(thetas(staircase), [1, 3.6], rtol=1e-9)
    np.testing.assert_allclose(staircase.events[1].offset, 3.568288414, atol=1e-6)
    times = [flow_times(system, LATE, staircase, eps) for eps in (1e-4, 1e-6)]
    slopes = (times[1] - times[0]) / np.log(100)
    np.testing.assert_allclose(slopes[1] / slopes[0], 3.6, rtol=1e-6)


def modalities(eps, cross, step, end):
    """Times of half drops of two modalities from `eps` LATE, by Runge-Kutta in the type of `eps`.

    Strengths 1 and 0.3, variances 1, covariance `cross`; numbers of any kind that has + and *. A
    drop that is not half done by the time `end` is at infinity.
    """
    one = eps / eps
    s_b = 3 * one / 10

    def velocity(b):
        a, c = b[0] * b[1], b[2] * b[3]
        r, q = one - a - cross * c, s_b - cross * a - c
        return [r * b[1], r * b[0], q * b[3], q * b[2]]

    def stepped(b, h):
        k1 = velocity(b)
        k2 = velocity([x + h / 2 * k for x, k in zip(b, k1, strict=True)])
        k3 = velocity([x + h / 2 * k for x, k in zip(b, k2, strict=True)])
        k4 = velocity([x + h * k for x, k in zip(b, k3, strict=True)])
        slopes = zip(b, k1, k2, k3, k4, strict=True)
        return [x + h / 6 * (p + 2 * q + 2 * r + s) for x, p, q, r, s in slopes]

    def loss(b):
        a, c = b[0] * b[1], b[2] * b[3]
        return a * a / 2 + c * c / 2 + cross * a * c - a - s_b * c

    best = (one + s_b * s_b - 2 * cross * s_b) / (1 - cross * cross)
    b, t, times = [eps * one * int(10 * x) / 10 for x in LATE], 0.0, []
    for level in (-one / 4, -one / 4 - best / 4):
        while loss(after := stepped(b, step)) > level and t < end:
            b, t = after, t + step
        if t >= end:
            return np.array([*times, np.inf])
        before, behind = 0.0, step
        for _ in range(40):
            middle = (before + behind) / 2
            before, behind = (
                (middle, behind) if loss(stepped(b, middle)) > level else (before, middle)
            )
        times.append(t + behind)
    return np.array(times)


@pytest.mark.slow  # thousands of steps with 40 digits
def test_a_flow_of_many_digits_where_double_precision_sees_its_rounding():
    """B's next direction falls to 1e-24 of its last one: with 16 digits rounding replaces it."""
    staircase = saddles(fusion((1, 0.3), 0.8), LATE)
    predicted = staircase.times(1e-40)
    with mpmath.workdps(40):
        eps, cross = mpmath.mpf(10) ** -40, mpmath.mpf(8) / 10
        exact_times = modalities(eps, cross, 0.05, 400.0)
    np.testing.assert_allclose(predicted, exact_times, rtol=0, atol=1e-4)
    rounded = modalities(1e-40, 0.8, 0.05, 400.0)
    assert abs(rounded[0] - predicted[0]) < 1e-4
    assert np.isinf(rounded[1])


def test_a_balanced_start_with_a_flipped_sign_is_never_learned():
    system = fusion((1, 0.6), 0.9)
    assert len(saddles(system, (1, 1, 1, 1)).events) == 1
    # The classes of equal edges do not see the direction in which they would part.
    balanced = saddles(system, (1, 1, 1, 1), quotient=False)
    assert len(balanced.events) == 1
    assert balanced.end == ("stable: never learned",)
    apart = saddles(system, LATE)
    np.testing.assert_allclose(thetas(apart), [1, 19 / 3], rtol=1e-9)
    assert apart.end == ("minimum",)


@pytest.mark.parametrize(
    ("depth", "separate", "first"),
    [
        pytest.param(3, 3, 1.0, marks=pytest.mark.slow),  # each compiles a system
        pytest.param(3, 2, 0.81196037287, marks=pytest.mark.slow),
        pytest.param(4, 3, 0.38994708558, marks=pytest.mark.slow),
    ],
)
def test_deep_fusion(depth, separate, first):
    system = fusion((1, 0.6), 0.3, depth, separate)
    c = [np.sqrt(2) if a[0] == "s" else 1.0 for a, _ in system.edges]
    staircase = saddles(system, c)
    np.testing.assert_allclose(coefficients(staircase), [first, 4 / 3], rtol=1e-6)
    kinds = ["power", "exponential" if separate == 2 else "power"]
    assert [event.kind for event in staircase.events] == kinds
    eps = 1e-3
    closed = exact.fusion_times(eps, 1, 0.6, 1, 1, 0.3, depth=depth, fusion=separate)
    np.testing.assert_allclose(staircase.times(eps), closed, rtol=1e-6)


@pytest.mark.slow  # a flow over 4,600 tau
def test_a_deep_flip_starts_from_where_the_first_stage_left_it():
    """12.811 with zeta(T*); 10.811 with c in its place. The flow at eps = 0.003 is 12.79659."""
    system, c = fusion((1, 0.6), 0.9, 3, 3), (1, 1, 1, 1, 1.2, 0.8)
    staircase = saddles(system, c)
    np.testing.assert_allclose(coefficients(staircase), [1, 12.8114772], rtol=1e-6)
    times = flow_times(system, c, staircase, 0.003)
    np.testing.assert_allclose((times[1] - times[0]) * 0.003, 12.8114772, rtol=2e-3)


@pytest.mark.slow  # compiles a system
def test_early_fusion_is_one_event():
    (event,) = saddles(fusion((1, 0.6), 0.3, 2, 1), (1, 0.8, 0.9)).events
    np.testing.assert_allclose(event.theta, 0.8574929257, rtol=1e-9)


# ---------------------------------------------------------------- the result
def test_times_table_and_picture(late):
    _, staircase = late
    eps = jnp.array([1e-3, 1e-6])
    times = staircase.times(eps)
    assert times.shape == (2, 2)
    slopes = jax.vmap(jax.grad(lambda e: staircase.times(e)[1]))(eps)
    np.testing.assert_allclose(slopes, -7 / 3 / eps, rtol=1e-9)
    table = staircase.table()
    assert "2.333 ln(1/eps) - 3.183" in table
    assert "block 1: minimum" in table
    assert repr(staircase).startswith("Staircase(2 events: 1 ln(1/eps) - 0.3894; 2.333")
    with pytest.raises(ValueError, match=r"eps is 0\.0; it must be above 0 and finite"):
        staircase.times(0.0)
    ax = plot.staircase(staircase, 1e-3)
    x, y = (np.asarray(one) for one in ax.lines[-1].get_data())
    np.testing.assert_allclose(x[1:3], times[0])
    levels = [staircase.events[0].loss_before, *(e.loss_after for e in staircase.events)]
    np.testing.assert_allclose(y[:3], levels)


def test_events_can_be_cut_off(late):
    cut = saddles(late[0], LATE, max_events=1)
    assert len(cut.events) == 1
    assert cut.end == ("stopped after 1 events",)


@pytest.mark.slow  # compiles two systems
def test_modes_that_do_not_meet_are_merged_by_time():
    """Two modes of one chain, and both forms of the equations: classes and edges."""
    graph = gdln.Graph({"x": 2, "h": 2, "y": 2}, [("x", "h"), ("h", "y")])
    data = gdln.GatedData.from_moments(
        {"x": 2}, {"y": 2}, xx=np.diag([1.0, 0.5]), yx=np.diag([2.0, 1.0])
    )
    reduction = gdln.reduce(graph, data)
    found = gdln.saddles(reduction, {"x->h": 1.0, "h->y": 0.9})
    np.testing.assert_allclose(thetas(found), [0.5, 1], rtol=1e-12)
    assert [event.modes for event in found.events] == [(1,), (2,)]
    np.testing.assert_allclose(found.events[0].loss_after, found.events[1].loss_before)
    np.testing.assert_allclose(found.events[1].loss_after, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.events[0].b["x->h"], [np.sqrt(2), 0], atol=1e-7)
    assert found.end == ("minimum", "minimum")
    edges = gdln.saddles(reduction, {"x->h": 1.0, "h->y": 0.9}, quotient=False)
    np.testing.assert_allclose(found.times(1e-9), edges.times(1e-9), rtol=1e-9)


def test_near_and_slow_events_have_flags():
    """B follows A closely, and leaves the plateau of A before A has settled."""
    system = fusion((1, 0.99), 0.3)
    flags = saddles(system, LATE).flags
    assert any("event 1: near" in flag for flag in flags)
    assert any("event 2: slow" in flag for flag in flags)
    assert saddles(system, LATE, near=1e-4).flags == ()


@pytest.mark.slow  # compiles a system
@pytest.mark.parametrize("s", [1.0, 0.9])
def test_a_resonance_has_a_flag(s):
    """h->g starts at 0. Growing g->y2 and decaying B force it at the sum of rates, s - 1."""
    routes = [["xA", "hA", "y1"], ["xB", "h", "y1"], ["xC", "g", "y2"], ["xB", "h", "g", "y2"]]
    xx = [[1, 0.3, 0], [0.3, 1, 0], [0, 0, 1]]
    system = Paths(routes, [[2, 1, 0], [0, 0.5, s]], xx)
    flags = saddles(system, (1, 0.9, 1, -1, 1, 1, 0)).flags
    assert [flag[:18] for flag in flags] == ["event 1: resonance"] * (s == 1)


# ---------------------------------------------------------------- refusals, and flows that show why
def refusal(system, c):
    with pytest.raises(gdln.SaddleError) as found:
        saddles(system, c)
    assert f"{found.value.reason}: " in str(found.value)
    return found.value


@pytest.mark.slow  # compiles a system
def test_simultaneous_events_are_refused():
    """B and C reach size 1 at one theta: which is first depends on c, at any eps."""
    system = Paths(
        [["xA", "hA", "y"], ["xB", "hB", "y"], ["xC", "hC", "y"]],
        [[1, 0.6, 0.4]],
        [[1, 0.3, -0.05], [0.3, 1, 0], [-0.05, 0, 1]],
    )
    small, large = (np.array([1, 0.9, 0.8, 1.1, x, x]) for x in (0.1, 20))
    found = refusal(system, small)
    assert found.reason == "simultaneous"
    assert len(found.staircase.events) == 1

    def lead(c, eps):
        """By how much B is half learned before C."""
        (b,), (c,) = (system.times(eps * c, [0.15], 80.0, path) for path in (1, 2))
        return c - b

    assert min(lead(small, 1e-3), lead(small, 1e-5)) > 5
    assert max(lead(large, 1e-3), lead(large, 1e-5)) < -1
    np.testing.assert_allclose(lead(small, 1e-3), lead(small, 1e-5), atol=0.2)


@pytest.mark.slow  # a flow at two scales
def test_driven_events_are_refused():
    """(1, -1) has no part in what grows, but the product of a longer path has: at 2 ln(1/eps)."""
    system = Paths([["x", "h", "y1"], ["x", "h", "g", "y2"]], [[1], [0.5]], [[1]])
    c = np.array([1, -1, 1, 1])
    found = refusal(system, c)
    assert found.reason == "driven"
    assert "theta 2" in str(found)
    (large,), (small,) = (system.times(eps * c, [0.5], 60.0, path=0) for eps in (1e-3, 1e-5))
    np.testing.assert_allclose((small - large) / np.log(100), 2.0, atol=0.01)


@pytest.mark.slow  # a flow over 10,000 tau
def test_unequal_exponents_are_refused():
    """One strength of the product of three is of size sqrt(eps): its time is no power of eps."""
    system = Paths(
        [["xA", "hA", "y1"], ["xB", "hB", "y1"], ["xB", "hB", "g", "y2"]],
        [[1, 0.5], [0, 0.8]],
        [[1, 0.5], [0.5, 1]],
    )
    c = np.array([1, 0.9, 1, 0.8, 1, 1])
    found = refusal(system, c)
    assert found.reason == "unequal exponents"
    assert len(found.staircase.events) == 1
    times = [system.times(eps * c, [0.2], 1e5, path=2)[0] for eps in (1e-2, 1e-4, 1e-6)]
    powers = np.diff(np.log(times)) / np.log(100)
    assert 0.5 < powers[1] < powers[0] - 0.02


def test_a_start_on_a_stable_set_is_refused():
    """Two equal smallest strengths with a wrong sign: the product falls to 0 and stays there."""
    system, stuck, free = chain(3), np.array([0.6, -0.6, 1.7]), np.array([0.6, -0.5, 1.7])
    assert refusal(system, stuck).reason == "stable set"
    assert len(saddles(system, free).events) == 1
    level = [-0.5 * 1.3**2 / 1.4]
    assert system.times(stuck / 10, level, 60.0) == np.inf
    assert system.times(free / 10, level, 60.0) < 30


@pytest.mark.slow  # 400 implicit steps over eight decades of time
def test_an_orbit_that_does_not_end_is_refused():
    """|b| grows like t^(1/4), and the gradient falls like t^(-3/4)."""
    reduction, c = gated(6)
    with pytest.raises(gdln.SaddleError) as found:
        gdln.saddles(reduction, c)
    assert found.value.reason == "orbit does not end"
    np.testing.assert_allclose(thetas(found.value.staircase)[0], 2.9126823915977953, rtol=1e-9)
    form = reduction.strengths_of(c)

    @jax.jit
    def velocity(_, flat):
        return -jax.grad(lambda x: reduction.loss(type(form).from_flat(form.graph, x[:, None])))(
            flat
        )

    jacobian = jax.jit(jax.jacfwd(velocity, argnums=1))
    start = 0.1 * np.asarray(form.flat())[:, 0]
    run = solve_ivp(
        velocity, (0, 1e8), start, "BDF", [1e6, 1e7, 1e8], jac=jacobian, rtol=1e-6, atol=1e-10
    )
    sizes = np.linalg.norm(run.y, axis=0)
    np.testing.assert_allclose(sizes[1:] / sizes[:-1], 10**0.25, rtol=0.03)


@pytest.mark.slow  # compiles one more system
def test_one_of_the_random_systems():
    """Seed 7: the reference by other code, and its flag."""
    reduction, c = gated(7)
    staircase = gdln.saddles(reduction, c)
    np.testing.assert_allclose(thetas(staircase), [1.8153424581884, 2.7340103141417], rtol=1e-10)
    offsets = [event.offset for event in staircase.events]
    np.testing.assert_allclose(offsets, [5.3699606536, -95.7690680408], atol=2e-4)
    assert [flag[:13] for flag in staircase.flags] == ["event 1: near"]


def test_what_saddles_refuses_before_it_starts(late):
    reduction = late[0].reduction
    misspelt: dict[str, Any] = {"max_event": 3}
    with pytest.raises(ValueError, match="lacks edge"):
        gdln.saddles(reduction, {"xA->hA1": 1.0})
    with pytest.raises(ValueError, match="not finite"):
        gdln.saddles(reduction, np.nan)
    with pytest.raises(ValueError, match="near"):
        gdln.saddles(reduction, 1.0, near=0.0)
    with pytest.raises(TypeError, match=r"'max_event' \(did you mean 'max_events'"):
        gdln.saddles(reduction, 1.0, **misspelt)
    single = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == float else x, reduction)
    with pytest.raises(ValueError, match="float64"):
        gdln.saddles(single, 1.0)


def test_arguments_of_another_kind(refused_plainly):
    refused_plainly("""
import jax

jax.config.update("jax_enable_x64", True)
import gdln_jax as gdln
from gdln_jax import plot

graph = gdln.Graph({"x": 1, "y": 1}, [("x", "y")])
found = gdln.Staircase((), ())
reduction = gdln.reduce(graph, gdln.GatedData({"x": [[1.0]]}, {"y": [[2.0]]}))
attempts = [
    (lambda: gdln.saddles(graph, 1.0), "this is a Graph: make one, gdln.reduce"),
    (lambda: gdln.saddles(reduction, 1.0, quotient="no"), "quotient is 'no'; pass True to merge"),
    (lambda: gdln.saddles(reduction, "a"), "c is 'a'; give one number"),
    (lambda: gdln.saddles(reduction, {"x->z": 1.0}), "c names 'x->z', which is not an edge"),
    (lambda: plot.staircase(reduction, 0.1), "staircase is a Reduction; make one, gdln.saddles"),
    (lambda: found.times("a"), "eps is 'a'; it must be above 0 and finite"),
    (lambda: found.times(float("inf")), "eps is inf; it must be above 0 and finite"),
]
""")


@pytest.mark.slow  # reduces a task
def test_a_start_that_breaks_ties_is_refused():
    task = tasks.semantic_contexts(3, residual=True, width=8, num_items=4)
    reduction = gdln.reduce(task.graph, task.data)
    assert reduction.ties is not None
    c = {**dict.fromkeys(reduction.frames, 1.0), reduction.ties[0][0]: 0.8}
    for quotient in (True, False):
        with pytest.raises(ValueError, match="exact only while the edges"):
            gdln.saddles(reduction, c, quotient=quotient)


def test_a_coupled_reduction_is_refused():
    rng = np.random.default_rng(0)
    graph = gdln.Graph({"x": 2, "h": 2, "y": 2}, [("x", "h"), ("h", "y")])
    data = gdln.GatedData({"x": rng.normal(size=(5, 2))}, {"y": rng.normal(size=(5, 2))})
    coupled = gdln.reduce(graph, data, on_inexact="coupled")
    with pytest.raises(ValueError, match="coupled"):
        gdln.saddles(coupled, 1.0)
