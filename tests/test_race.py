"""Races: R's equation, the true pathways, and what is true of R's claims (theory#races).

Known solutions held against: the common clock by scipy's quadrature and root finder, the logistic
for equal rates, the weights of full `GatedNetwork`s under gradient flow.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import root_scalar

from gdln_jax import GatedData, GatedNetwork, Graph, SolveError, gradient_flow, race

RATES = (1.0, 0.9, 0.8)
START = (0.01, 0.01, 0.01)


def _root(f, low, high):
    return float(root_scalar(f, bracket=(low, high), xtol=1e-15).root)


# ---------------------------------------------------------------- R's equation
def test_reference_clock_limit_and_frozen_shares(reference):
    known = reference["exact"]["lotka_volterra"]
    model = race.LotkaVolterra(RATES)
    assert float(model.clock_limit(START)) == pytest.approx(known["T_inf"], abs=6e-9)
    np.testing.assert_allclose(model.limit(START), known["s_inf"], atol=6e-8)


def test_two_pathways_end_ratio(reference):
    """Root of exp(2T) + exp(1.6T) = 1e4, ratio exp(-.2 T_inf) = .404176790.

    The reference's .41702818 belongs to another set-up than it states: it is the ratio of the third
    to the first pathway in its three-pathway race, exp(-.2 * 4.37300746).
    """
    clock = _root(lambda t: np.exp(2 * t) + np.exp(1.6 * t) - 1e4, 0, 10)
    two = race.LotkaVolterra([1.0, 0.8]).limit([0.01, 0.01])
    assert float(two[1] / two[0]) == pytest.approx(np.exp(-0.2 * clock), rel=1e-12)
    assert float(two[1] / two[0]) == pytest.approx(0.40417679043, abs=1e-10)
    three = race.LotkaVolterra(RATES).limit(START)
    stated = reference["exact"]["lotka_volterra_two"]["final_ratio_loser_winner"]
    assert float(three[2] / three[0]) == pytest.approx(stated, abs=6e-9)


@pytest.mark.parametrize("scale", [1e-3, 1e-8, 1e-14, 1e-30])
def test_clock_solution_agrees_with_ode_and_quadrature_on_any_plateau(scale):
    """The same relative accuracy from every plateau."""
    model = race.LotkaVolterra(RATES, 1.7)
    s0 = scale * np.array([1.0, 2.0, 0.5])
    ts = np.linspace(0.0, 2.0 * float(model.clock_limit(s0)), 41)
    exact = model.solve(s0, ts)
    np.testing.assert_allclose(model.solve(s0, ts, method="ode"), exact, rtol=1e-10)
    np.testing.assert_allclose(exact[0], s0, rtol=1e-15)
    clock = np.asarray(model.clock(s0, ts))

    def slowness(at):
        return 1 / (1 - np.sum((s0 * np.exp(np.array(RATES) * at) / 1.7) ** 2))

    for k in (3, 12, 19, 22):
        time, _ = quad(slowness, 0.0, clock[k], epsabs=0, epsrel=1e-12, limit=500)
        # As an error of T: near T_inf the time is ill-conditioned in the rounding of T.
        assert abs(time - ts[k]) / slowness(clock[k]) <= 1e-12 * clock[k]
    np.testing.assert_allclose(exact[-1], model.limit(s0), rtol=1e-6)


def test_equal_rates_follow_the_logistic_and_keep_their_ratios():
    """F = sum s^2/s_max^2 obeys dF/dt = 2 sigma F (1 - F)."""
    sigma, s0 = 1.3, np.array([0.01, 0.02, 0.005])
    ts = np.linspace(0.0, 12.0, 25)
    s = np.asarray(race.LotkaVolterra([sigma] * 3, 2.0).solve(s0, ts))
    start = np.sum(s0**2) / 4
    total = 1 / (1 + (1 / start - 1) * np.exp(-2 * sigma * ts))
    np.testing.assert_allclose(np.sum(s**2, axis=1) / 4, total, rtol=1e-12)
    np.testing.assert_allclose(s / s[:, :1], np.broadcast_to(s0 / s0[0], s.shape), rtol=1e-12)


def test_every_strength_grows_then_freezes_and_none_decays():
    """Against R's 'others decay to zero'; the limit lies on the sphere |s| = s_max."""
    rng, ends = np.random.default_rng(0), list(itertools.product((0.0, 1.0), repeat=4))
    shares = np.concatenate([ends, rng.uniform(size=(8, 4))])  # corners, and within
    rates, s0 = 0.2 + 2.8 * shares[:, :2], 10.0 ** (-6.0 + 5.4 * shares[:, 2:])

    def course(rates, s0):
        model = race.LotkaVolterra(rates)
        return model.solve(s0, np.linspace(0.0, 60.0, 16)), model.limit(s0)

    s, limit = jax.tree.map(np.asarray, jax.jit(jax.vmap(course))(rates, s0))
    assert (np.diff(s, axis=1) >= -1e-14).all()
    assert (limit > s0).all()
    np.testing.assert_allclose(np.sum(limit**2, axis=1), 1.0, rtol=1e-12)


def test_winner_is_largest_log_start_plus_rate_times_clock_not_rate_times_start():
    """R's rule fails: the slow pathway has the larger sigma s(0) and loses."""
    rates, s0 = np.array([1.0, 0.8]), np.array([0.01, 0.02])
    model = race.LotkaVolterra(rates)
    assert int(race.summary_rule(rates, s0)) == 1
    end = model.solve(s0, [0.0, 200.0])[-1]
    assert int(model.winner(s0)) == int(jnp.argmax(end)) == 0


def test_from_above_saturation_the_clock_runs_backward():
    model, s0 = race.LotkaVolterra([1.0, 0.2]), np.array([2.0, 0.7])
    assert float(model.clock_limit(s0)) < 0
    ts = np.linspace(0.0, 5.0, 21)
    s = np.asarray(model.solve(s0, ts))
    np.testing.assert_allclose(s, model.solve(s0, ts, method="ode"), rtol=1e-9)
    assert (np.diff(s, axis=0) < 0).all()
    assert np.isfinite(np.asarray(model.solve([2.0, 1.5], [0.0, 1e4]))).all()
    # A huge range of rates: the fast one shrinks by exp(-1386), which rounds to 0, not to NaN.
    far = race.LotkaVolterra([1e-3, 2.0])
    s = np.asarray(far.solve([2.0, 1.0], [0.0, 1.0, 1e6]))
    np.testing.assert_allclose(s[-1], [1.0, 0.0], atol=1e-12)


def test_on_the_sphere_nothing_moves():
    model, s0 = race.LotkaVolterra([1.0, 0.4]), np.array([0.6, 0.8])
    np.testing.assert_allclose(model.solve(s0, [0.0, 3.0])[-1], s0, atol=1e-15)
    slope = jax.jacobian(model.limit)(jnp.asarray(s0))
    assert np.isfinite(np.asarray(slope)).all()


def test_zero_strength_stays_zero_and_has_derivatives():
    model = race.LotkaVolterra(RATES)
    s0 = jnp.array([0.01, 0.0, 0.02])
    assert float(model.limit(s0)[1]) == 0.0
    slopes = np.asarray(jax.jit(jax.jacobian(lambda s: model.solve(s, jnp.array([5.0]))[0]))(s0))
    assert np.isfinite(slopes).all()
    growth = float(jnp.exp(0.9 * model.clock(s0, [5.0])[0]))
    assert slopes[1, 1] == pytest.approx(growth, rel=1e-12)


def test_phases_are_the_times_at_which_the_brake_reaches_its_levels():
    model = race.LotkaVolterra(RATES)
    phases = model.phases(START, slowed=0.2, frozen=0.03)
    for time, total in ((phases.exponential_end, 0.2), (phases.frozen_start, 0.97)):
        s = model.solve(START, jnp.stack([time]))[0]
        assert float(jnp.sum(s**2)) == pytest.approx(total, rel=1e-12)
    assert float(phases.competition) > 0
    early = np.array([0.25, 0.5]) * float(phases.exponential_end)
    free = 0.01 * np.exp(np.outer(early, RATES))  # R's exponential phase, which is right
    np.testing.assert_allclose(model.solve(START, early), free, rtol=2e-2)
    above = model.phases([2.0, 1.0, 1.0])
    assert float(above.exponential_end) == 0.0
    end = model.solve([2.0, 1.0, 1.0], jnp.stack([above.frozen_start]))[0]
    assert float(jnp.sum(end**2)) == pytest.approx(1.01, rel=1e-12)


def test_gradients_in_rates_start_and_time_match_finite_differences():
    s0, ts = jnp.array([0.02, 0.01, 0.03]), jnp.array([1.0, 3.0, 4.5, 9.0])

    def probe(x):
        model = race.LotkaVolterra(x[:3], x[6])
        late = model.phases(x[3:6]).frozen_start
        return jnp.sum(model.solve(x[3:6], ts * x[7])) + model.limit(x[3:6])[2] + late

    x = jnp.concatenate([jnp.array(RATES), s0, jnp.array([1.2, 1.0])])
    got = np.asarray(jax.jit(jax.grad(probe))(x))
    steps = 1e-5 * np.asarray(x)
    run = jax.jit(probe)
    known = [(run(x.at[k].add(h)) - run(x.at[k].add(-h))) / (2 * h) for k, h in enumerate(steps)]
    np.testing.assert_allclose(got, known, rtol=1e-7)
    forward = np.asarray(jax.jit(jax.jacfwd(probe))(x))
    np.testing.assert_allclose(forward, got, rtol=1e-10)


def test_vmap_and_jit_give_the_same():
    model, ts = race.LotkaVolterra(RATES), jnp.linspace(0.0, 8.0, 5)
    starts = jnp.array([[0.01, 0.02, 0.03], [1e-9, 1e-8, 1e-9], [2.0, 1.0, 0.5]])
    batch = jax.jit(jax.vmap(lambda s: model.solve(s, ts)))(starts)
    single = jnp.stack([model.solve(s, ts) for s in starts])
    np.testing.assert_allclose(batch, single, rtol=1e-13)


def test_drive_is_solved_and_has_no_clock():
    """With E = const and equal strengths ds/dt = s (1 - 2 s^2) + e; a drive lifts zeros too."""
    model = race.LotkaVolterra([1.0, 1.0], drive=lambda t: 0.05 + 0.0 * t)
    s = np.asarray(model.solve([0.0, 1e-12], [0.0, 40.0]))[-1]
    root = _root(lambda x: x * (1 - 2 * x**2) + 0.05, 0.5, 1.0)
    np.testing.assert_allclose(s, root, rtol=1e-8)
    with pytest.raises(ValueError, match="no common clock"):
        model.limit([0.1, 0.1])
    zero = race.LotkaVolterra(RATES, drive=lambda t: jnp.zeros(3) * t)
    ts = np.linspace(0.0, 9.0, 7)
    np.testing.assert_allclose(
        zero.solve(START, ts), race.LotkaVolterra(RATES).solve(START, ts), rtol=1e-10
    )


# ---------------------------------------------------------------- the true pathways
def _aligned(widths, strength, output):
    """Weights of one pathway, rank one, balanced: u b_l a_l^T with unit vectors that match."""
    rng = np.random.default_rng(widths[0] + 10 * len(widths))
    frames = [rng.normal(size=w) for w in widths[:-1]]
    frames = [f / np.linalg.norm(f) for f in frames] + [output]
    weights = [strength * np.outer(b, a) for a, b in itertools.pairwise(frames)]
    return frames[0], weights


@pytest.mark.parametrize("depth", [2, 3])
def test_views_in_a_gated_network_follow_the_pathways(depth):
    """One input node per view, present in some examples only; D is not c S S^T. To 1e-9."""
    presence = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [0, 1]], float)
    amplitude, target, u0 = np.array([1.0, 1.3]), 1.1, np.array([0.12, 0.1])
    output = np.array([0.6, 0.8])
    nodes, edges, weights, inputs = {"y": 2}, [], {}, {}
    for m in range(2):
        names = [f"x{m}", *[f"h{m}_{k}" for k in range(depth - 1)], "y"]
        widths = [3, *[4] * (depth - 1), 2]
        nodes |= dict(zip(names[:-1], widths, strict=False))
        edges += list(itertools.pairwise(names))
        direction, arrays = _aligned(widths, u0[m], output)
        pairs = zip(names[:-1], names[1:], arrays, strict=True)
        weights |= {f"{a}->{b}": w for a, b, w in pairs}
        inputs[f"x{m}"] = jnp.asarray(amplitude[m] * presence[:, m, None] * direction)
    net = GatedNetwork(Graph(nodes, edges), weights)
    data = GatedData(inputs, {"y": jnp.asarray(np.broadcast_to(target * output, (5, 2)))})
    views = presence * amplitude
    S, D = target * views.mean(0), views.T @ views / 5
    model, tau = race.Pathways(S, D, depth), 2.5
    a0, ts = u0**depth, np.array([0.0, 4.0, 9.0, 15.0, 40.0])
    assert not model.coincides_with_lotka_volterra()
    flow = gradient_flow(net, data, jnp.asarray(ts), tau=tau, rtol=1e-13, atol=1e-14)
    a = np.asarray(model.solve(a0, ts, tau=tau))
    maps = []
    for m in range(2):
        path = [e for e in weights if f"x{m}" in e or f"h{m}_" in e]
        maps.append(np.linalg.norm(flow.product(path), axis=(1, 2)))
    np.testing.assert_allclose(np.stack(maps, axis=1), a, atol=1e-9)
    losses = np.asarray(jax.vmap(model.loss)(jnp.asarray(a))) + target**2 / 2
    np.testing.assert_allclose(flow.losses, losses, atol=1e-9)


def test_gated_hidden_pathways_from_one_input_that_fire_together_are_the_summary_equation():
    """x -> h_m -> y with gates of real amplitude r_m on every example: D = c S S^T. To 1e-9."""
    gates, u0 = np.array([1.0, 0.7]), np.array([0.05, 0.08])
    output = np.array([0.6, 0.8])
    direction, first = _aligned([2, 3, 2], u0[0], output)
    weights = {"x->h0": first[0], "h0->y": first[1]}
    weights |= {"x->h1": first[0] * u0[1] / u0[0], "h1->y": first[1] * u0[1] / u0[0]}
    nodes = {"x": 2, "h0": 3, "h1": 3, "y": 2}
    net = GatedNetwork(Graph(nodes, [("x", "h0"), ("x", "h1"), ("h0", "y"), ("h1", "y")]), weights)
    data = GatedData(
        {"x": jnp.asarray(direction[None])},
        {"y": jnp.asarray(1.4 * output[None])},
        node_gates={f"h{m}": jnp.asarray(gates[m : m + 1]) for m in range(2)},
    )
    model = race.Pathways(1.4 * gates, np.outer(gates, gates))
    assert model.coincides_with_lotka_volterra()
    ts = np.array([0.0, 1.0, 2.0, 3.0, 8.0])
    flow = gradient_flow(net, data, jnp.asarray(ts), rtol=1e-13, atol=1e-14)
    a = [np.linalg.norm(flow.product([f"x->h{m}", f"h{m}->y"]), axis=(1, 2)) for m in range(2)]
    contributions = np.stack(a, axis=1) * gates
    summary = model.to_lotka_volterra()
    s0 = jnp.sqrt(model.contributions(jnp.asarray(u0**2)))
    np.testing.assert_allclose(summary.solve(s0, ts) ** 2, contributions, atol=1e-9)
    assert float(summary.s_max**2) == pytest.approx(1.4)
    np.testing.assert_allclose(summary.rates, 1.4 * gates)


def test_coincidence_holds_iff_D_is_proportional_to_S_S():
    """Views in a fraction p < 1 of the examples, independently: no; p = 1: yes."""
    amplitude = np.array([1.0, 0.8, 1.2])
    for p, same in ((1.0, True), (0.999, False), (0.5, False)):
        D = p * p * np.outer(amplitude, amplitude) + np.diag(p * (1 - p) * amplitude**2)
        model = race.Pathways(p * amplitude, D)
        assert model.coincides_with_lotka_volterra() is same
        if not same:
            with pytest.raises(ValueError, match="not c S S"):
                model.to_lotka_volterra()
    deeper = race.Pathways(amplitude, np.outer(amplitude, amplitude), depth=3)
    assert not deeper.coincides_with_lotka_volterra()
    with pytest.raises(ValueError, match="depth 2"):
        deeper.to_lotka_volterra()
    negative = race.Pathways([-1.0, 1.0], [[1.0, -1.0], [-1.0, 1.0]])
    assert not negative.coincides_with_lotka_volterra()


def test_no_lotka_volterra_fits_views_that_sometimes_occur_alone():
    """Negative control: the rate per unit strength is then not one common brake."""
    model = race.Pathways([0.5, 0.5], [[0.5, 0.25], [0.25, 0.5]])
    a = jnp.array([0.3, 0.1])
    brakes = model.velocity(a) / (2 * a * model.S)
    assert abs(float(brakes[0] - brakes[1])) > 0.05


@pytest.mark.parametrize("p", [0.2, 0.6, 0.95])
def test_views_present_with_probability_below_one_are_all_learned(p):
    """S = p, D = p^2 (+ p (1 - p) on the diagonal): all a -> 1/(1 + (M - 1) p), from any start."""
    D = p * p * np.ones((4, 4)) + p * (1 - p) * np.eye(4)
    model = race.Pathways(np.full(4, p), D)
    known = np.full(4, 1 / (1 + 3 * p))
    np.testing.assert_allclose(model.limit(), known, rtol=1e-12)
    slow = 1 / (p * (1 - p) * known[0])
    end = model.solve([1e-6, 1e-4, 1e-5, 1e-3], [0.0, 30 * slow])[-1]
    np.testing.assert_allclose(end, known, rtol=1e-9)


@pytest.mark.parametrize("depth", [2, 4])
def test_limit_is_non_negative_least_squares(depth):
    """A pathway whose role others fill better dies; the rest solve D a = S exactly."""
    D = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.1], [0.0, 0.1, 1.0]])
    model = race.Pathways([1.0, 0.5, 0.6], D, depth)
    limit = np.asarray(model.limit())
    np.testing.assert_allclose(limit, [1.0, 0.0, 0.6], rtol=1e-12)
    end = np.asarray(model.solve([0.01, 0.02, 0.01], [0.0, 4000.0])[-1])
    tail = {2: 1e-12, 4: 1e-6}[depth]  # exponential, t^-2
    np.testing.assert_allclose(end, limit, atol=tail)
    np.testing.assert_allclose(model.limit([0.0, 0.1, 0.0]), [0.0, 0.5, 0.0], atol=1e-15)


@pytest.mark.parametrize(("depth", "dying"), [(2, False), (2, True), (3, True), (4, False)])
def test_limit_on_a_face_is_the_one_the_flow_reaches(depth, dying):
    """Singular D, not rank one: k.ln a or k.u^(2-L) is kept for D k = 0, and picks the limit."""
    X = np.array([[1.0, 0.0], [0.6, 0.8], [0.2, 1.0], [0.9, 0.5]])
    S, D, a0 = X @ [1.0, 0.7], X @ X.T, np.array([0.02, 0.05, 0.03, 0.01])
    if dying:  # one more pathway, in a dimension of its own, with negative correlation
        S, a0 = np.append(S, -0.4), np.append(a0, 0.05)
        D = np.block([[D, np.zeros((4, 1))], [np.zeros((1, 4)), np.ones((1, 1))]])
    model = race.Pathways(S, D, depth)
    with pytest.raises(ValueError, match="depends on the start"):
        model.limit()
    limit = np.asarray(model.limit(a0))
    np.testing.assert_allclose((D @ limit)[:4], S[:4], rtol=1e-11)
    assert (limit[:4] > 0).all()
    end = np.asarray(model.solve(a0, [0.0, 4000.0])[-1])
    np.testing.assert_allclose(end[:4], limit[:4], rtol=1e-8)
    assert not dying or limit[4] == 0.0


@given(
    depth=st.integers(2, 5),
    ratio=st.floats(0.3, 3.0),
    head=st.floats(0.5, 2.0),
    capacity=st.floats(0.3, 3.0),
)
def test_limit_of_views_that_always_occur_together_has_no_residual(depth, ratio, head, capacity):
    S = np.array([1.0, ratio])
    model = race.Pathways(S, capacity * np.outer(S, S), depth)
    a0 = np.array([0.05, 0.05 * head]) ** depth
    limit = np.asarray(model.limit(a0))
    assert capacity * S @ limit == pytest.approx(1.0, rel=1e-12)
    if depth == 2:
        kept = np.log(limit / a0) / S
    else:
        kept = (a0 ** (2 / depth - 1) - limit ** (2 / depth - 1)) / S
    assert kept[0] == pytest.approx(kept[1], rel=1e-9)  # one clock for both


def test_frozen_state_agrees_with_the_summary_equation_for_two_layers():
    S = np.array([1.0, 0.8])
    model = race.Pathways(S, 0.6 * np.outer(S, S))
    a0 = jnp.array([1e-4, 2e-4])
    s = model.to_lotka_volterra().limit(jnp.sqrt(model.contributions(a0)))
    np.testing.assert_allclose(model.contributions(model.limit(a0)), s**2, rtol=1e-12)
    ts = np.linspace(0.0, 30.0, 11)
    exact = model.to_lotka_volterra().solve(jnp.sqrt(model.contributions(a0)), ts)
    np.testing.assert_allclose(model.contributions(model.solve(a0, ts)), exact**2, rtol=1e-9)


def test_deeper_races_are_stronger(reference):
    """Equal rates, u0 = .1 and .09: loser/winner .81, .112, .00167, by the clock and by the flow.

    Closed form: v = u^(2-L), v_2 - v_1 is kept and sum v^(-L/(L-2)) = 1. It gives .112357250718 and
    .00167454955057; the reference (.11235726, .0016745495) is within one unit of its last digit.
    """
    known = reference["exact"]["depth_race"]
    u0 = np.array([0.1, 0.09])

    def gap_law(depth):
        power, (first, second) = depth / (depth - 2), u0 ** (2 - depth)
        gap = second - first
        v = _root(lambda x: x**-power + (x + gap) ** -power - 1, 1.0, 2.0)
        return (v / (v + gap)) ** power

    for depth in (2, 3, 4):
        model = race.Pathways([1.0, 1.0], np.ones((2, 2)), depth)
        limit = np.asarray(model.limit(u0**depth))
        loser = limit[1] / limit[0]
        unit = {2: 1e-13, 3: 1e-8, 4: 1e-10}[depth]
        assert loser == pytest.approx(known[f"L{depth}"], abs=unit)
        assert loser == pytest.approx({2: 0.81, 3: gap_law(3), 4: gap_law(4)}[depth], rel=1e-11)
        end = np.asarray(model.solve(u0**depth, [0.0, 300.0])[-1])
        assert end[1] / end[0] == pytest.approx(loser, rel=1e-9)


def test_small_start_winner_is_rate_times_strength_to_the_depth_minus_two():
    """Each pathway's rule value differs by 1.2 at least; R's rule is right for L = 3 alone."""
    rng = np.random.default_rng(3)
    right = {}
    for depth in (2, 3, 4):
        hits = []
        for _ in range(40):
            S, u0 = rng.uniform(0.5, 2, 2), 1e-4 * rng.uniform(0.5, 2, 2)
            value = S * u0 ** (depth - 2)
            if max(value) / min(value) < 1.2:
                continue
            model = race.Pathways(S, np.outer(S, S), depth)
            winner = int(jnp.argmax(model.contributions(model.limit(u0**depth))))
            assert winner == int(model.winner(u0**depth)) == int(race.depth_rule(S, u0, depth))
            hits.append(int(race.summary_rule(S, u0)) == winner)
        right[depth] = np.mean(hits)
    assert right[3] == 1.0
    assert right[2] < 0.95
    assert right[4] < 0.95
    tie = race.Pathways([1.0, 1.0], np.ones((2, 2)))
    assert int(tie.winner([1e-4, 2e-4])) == 1


@pytest.mark.slow
def test_pathways_gradients_match_finite_differences():
    D = jnp.array([[0.5, 0.2], [0.2, 0.6]])
    a0, ts = jnp.array([1e-3, 2e-3]), jnp.array([3.0, 8.0])

    @jax.jit
    def probe(x):
        model = race.Pathways(x[:2], D, 3)
        return jnp.sum(model.solve(x[2:], ts))

    x = jnp.concatenate([jnp.array([0.7, 0.6]), a0])
    got, steps = jax.grad(probe)(x), 1e-5 * np.asarray(x)
    known = [
        (probe(x.at[k].add(h)) - probe(x.at[k].add(-h))) / (2 * h) for k, h in enumerate(steps)
    ]
    np.testing.assert_allclose(got, known, rtol=1e-6)


def test_pathways_vmap_and_scale_with_tau():
    D, a0, ts = jnp.array([[0.5, 0.2], [0.2, 0.6]]), jnp.array([1e-3, 2e-3]), jnp.array([3.0, 8.0])
    model = race.Pathways([0.7, 0.6], D)
    np.testing.assert_allclose(model.solve(a0, ts, tau=4.0), model.solve(a0, ts / 4.0), rtol=1e-12)
    batch = jax.vmap(lambda a: model.solve(a, ts))(jnp.stack([a0, 2 * a0]))
    np.testing.assert_allclose(batch[1], model.solve(2 * a0, ts), rtol=1e-9)


def test_long_plateau_of_two_layers():
    """One pathway is the logistic: t(a) = ln[a (S - D a0)/(a0 (S - D a))]/(2 S)."""
    for a0 in (1e-3, 1e-14, 1e-30):
        half = np.log((2.0 - 0.5 * a0) / (0.5 * a0)) / 4
        a = race.Pathways([2.0], [[0.5]]).solve([a0], [0.0, half])[-1, 0]
        assert float(a) == pytest.approx(2.0, rel=1e-9)


# ---------------------------------------------------------------- data for pictures
def test_winner_map_against_both_rules():
    """Exact map; the depth rule is the boundary as u0 -> 0, R's rule is it for L = 3 only."""
    rate, start = jnp.linspace(0.53, 1.9, 24), jnp.linspace(0.52, 1.93, 25)
    for depth in (2, 3, 4):
        maps = [race.winner_map(rate, start, depth, u0=u) for u in (1e-1, 1e-2, 1e-4)]
        accuracy = [float(m.depth_accuracy) for m in maps]
        assert accuracy == sorted(accuracy)
        assert accuracy[-1] > 0.965
        assert (float(maps[-1].summary_accuracy) > 0.99) is (depth == 3)
        S, u0 = np.array([1.0, float(rate[5])]), 1e-2 * np.array([1.0, float(start[20])])
        model = race.Pathways(S, np.outer(S, S), depth)
        share = model.contributions(model.limit(u0**depth))
        assert float(maps[1].share[5, 20]) == pytest.approx(float(share[1]), rel=1e-10)
        assert maps[1].winner.shape == (24, 25)


def test_frozen_arc_and_nullclines_are_at_rest():
    summary = race.LotkaVolterra([1.0, 0.6], 1.5)
    arc = race.frozen_arc(1.5, 33)
    np.testing.assert_allclose(jax.vmap(summary.velocity)(arc), 0.0, atol=1e-15)
    model = race.Pathways([1.0, 0.7], [[1.0, 0.3], [0.3, 0.8]])
    lines, meets = race.nullclines(model, 1.2, 21)
    assert bool(meets.all())
    for m in range(2):
        moving = jax.vmap(model.velocity)(lines[m])
        np.testing.assert_allclose(moving[:, m], 0.0, atol=1e-14)
        assert float(lines[m].min()) == 0.0
    together = race.Pathways([1.0, 0.5], np.outer([1.0, 0.5], [1.0, 0.5]))
    lines, _ = race.nullclines(together, 3.0, 11)
    np.testing.assert_allclose(lines[0] @ jnp.array([1.0, 0.5]), 1.0, rtol=1e-14)
    np.testing.assert_allclose(lines[1], lines[0], atol=1e-14)
    alone, meets = race.nullclines(race.Pathways([1.0, 5.0], jnp.eye(2)), 2.0)
    assert meets.tolist() == [True, False]
    np.testing.assert_allclose(alone[0][:, 0], 1.0)


def test_phase_field_is_the_velocity_on_a_grid():
    for system in (race.LotkaVolterra([1.0, 0.5]), race.Pathways([1.0, 0.5], jnp.eye(2), 3)):
        field = race.phase_field(system, 1.2, 4)
        point = jnp.array([field.axis[3], field.axis[1]])
        np.testing.assert_allclose(field.velocity[1, 3], system.velocity(point), rtol=1e-14)
    with pytest.raises(ValueError, match="this race has 3"):
        race.phase_field(race.LotkaVolterra(RATES), 1.0)


# ---------------------------------------------------------------- errors
def test_a_solver_that_gives_up_says_how_far_it_came(monkeypatch):
    broken = race.LotkaVolterra(RATES, drive=lambda t: jnp.where(t < 1, 0.0, jnp.nan))
    ts = jnp.array([0.0, 0.5, 2.0])
    with pytest.raises(SolveError, match=r"gave up at time 1 of 2"):
        broken.solve(START, ts)
    run = broken.solve(START, ts, throw=False)
    assert run.status == 2
    assert run.reached == pytest.approx(1.0)
    assert np.isfinite(run.values[:2]).all()
    assert np.isnan(run.values[2]).all()
    traced = jax.jit(lambda start: broken.solve(start, ts))(jnp.array(START))
    np.testing.assert_array_equal(traced, run.values)
    whole = race.LotkaVolterra(RATES).solve(START, ts, throw=False)
    assert whole.status == 0
    assert np.isfinite(whole.values).all()
    with pytest.raises(TypeError, match="holds several arrays"):
        np.asarray(whole)
    # Bounded by stability once the race is over. (No other test races seven pathways.)
    monkeypatch.setattr("gdln_jax.race._arguments.MAX_STEPS", 60)
    seven = race.Pathways(np.linspace(0.5, 1, 7), np.eye(7))
    late = jnp.array([0.0, 1.0, 1e4])
    with pytest.raises(SolveError, match=r"of 10000: all 60 steps are used up"):
        seven.solve(np.full(7, 0.1), late, tau=2.0)
    run = seven.solve(np.full(7, 0.1), late, tau=2.0, throw=False)
    assert run.status == 2
    assert run.stats["num_steps"] == 60
    np.testing.assert_array_equal(run.ts, late)
    assert np.isnan(run.values).any(axis=1).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: race.LotkaVolterra([1.0, -1.0]), r"rates\[1\] is -1.0"),
        (lambda: race.LotkaVolterra([]), "one rate per pathway"),
        (lambda: race.LotkaVolterra(RATES, 0.0), "s_max is 0.0"),
        (lambda: race.LotkaVolterra(RATES, [1.0, 2.0]), "all pathways share one"),
        (lambda: race.LotkaVolterra(RATES).limit([0.1, 0.1]), "one entry per pathway"),
        (lambda: race.LotkaVolterra(RATES).limit([0.1, -0.1, 0.1]), r"s0\[1\] is -0.1"),
        (lambda: race.LotkaVolterra(RATES).limit([0.0, 0.0, 0.0]), "nothing would ever grow"),
        (lambda: race.LotkaVolterra(RATES).solve(START, 1.0), "times along one axis"),
        (lambda: race.LotkaVolterra(RATES).solve(START, [2.0, 1.0]), "sort them"),
        (lambda: race.LotkaVolterra(RATES).solve(START, [1.0], method="od"), "did you mean 'ode'"),
        (lambda: race.LotkaVolterra(RATES).solve(START, [1.0], method="ode", rtol=1e-17), "rtol"),
        (lambda: race.LotkaVolterra(RATES).phases(START, slowed=0.995), "slowed is 0.995"),
        (lambda: race.Pathways([1.0, 1.0], np.eye(3)), "must be"),
        (lambda: race.Pathways([1.0, 1.0], [[1.0, 2.0], [2.0, 1.0]]), "semi-definite"),
        (lambda: race.Pathways([1.0, 1.0], [[1.0, 0.5], [0.2, 1.0]]), "not symmetric"),
        (lambda: race.Pathways([1.0, 2.0], np.ones((2, 2))), "outside the range"),
        (lambda: race.Pathways([1.0], [[1.0]], depth=1), "depth is 1"),
        (lambda: race.Pathways([1.0], [[1.0]]).solve([-1.0], [1.0]), r"a0\[0\] is -1.0"),
        (lambda: race.LotkaVolterra(RATES).solve(START, [1.0], rtol=1e-6), "the clock is exact"),
        (
            lambda: race.LotkaVolterra(RATES).solve(START, [1.0], method="ode", rtol=-1),
            "rtol is -1",
        ),
        (lambda: race.Pathways([1.0], [[1.0]]).solve([1.0], [1.0], tau=0.0), "tau is 0.0"),
        (lambda: race.Pathways([1.0], [[1.0]]).solve([1.0], [1.0], tau=jnp.inf), "tau is inf"),
        (lambda: race.Pathways([1.0], [[1.0]]).solve([1.0], [1.0], rtol=jnp.nan), "rtol is nan"),
        (lambda: race.winner_map([1.0, 0.0], [1.0], 2), "rate_ratios"),
    ],
)
def test_bad_input_is_named_with_its_cure(call, message):
    with pytest.raises(ValueError, match=message):
        call()
