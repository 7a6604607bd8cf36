"""Tasks in turn: reductions over a schedule, exact switches, forgetting (theory#sequences).

Reference values, computed independently of this package: two balanced layers, two modes with
d = 1, a(0) = 0.01; tasks A, B, A on [0, 5], [5, 9], [9, 14].
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax import GatedData, Graph, Schedule, exact, measures

GRAPH = Graph.chain([2, 3, 3])
PATH = ("x->h1", "h1->y")
TS = np.array([0.0, 2.0, 5.0, 7.0, 9.0, 12.0, 14.0])
SWITCHES = [5.0, 9.0]
S_A, S_B = np.array([1.0, 0.6]), np.array([0.2, 1.1])
EYE = np.eye(2)
TURN = np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])


def task(s, constant=0.0, turn=EYE, xx=None):
    """y = diag(s) x on whitened inputs, and a third feature that nothing predicts."""
    yx = np.concatenate([np.diag(s) @ turn, np.zeros((1, 2))])
    yy = np.diag([*np.square(s), 2 * constant])
    own = {"xx": np.eye(2), "yx": yx, "yy": yy} if xx is None else {"xx": xx, "yx": yx}
    return GatedData.from_moments({"x": 2}, {"y": 3}, **own)


A, B = task(S_A, 0.1), task(S_B, 0.05)
ABA = Schedule([A, B], SWITCHES, [0, 1, 0])


@pytest.fixture(scope="module")
def reduction():
    return gdln.reduce(GRAPH, ABA)


@pytest.fixture(scope="module")
def run(reduction):
    return reduction.solve(0.1, TS)


def by_task(reduction, values):
    """Modes in the order of s_A: the reduction orders them by strength over both tasks."""
    rows = np.abs(np.asarray(reduction.frames["h1->y"][0]))[:2]
    return np.asarray(values)[..., rows.argmax(axis=1)]


def test_all_phases_share_frames_and_each_is_certified(reduction):
    assert reduction.order == (0, 1, 0)
    assert reduction.residuals.shape == (3,)
    assert reduction.residual < 1e-12
    assert [part.strengths["x", "y"].shape for part in reduction.phases] == [(2,)] * 3
    assert "3 phases of 2 data sets, switches at 5, 9" in repr(reduction)
    assert float(reduction.loss(0.1, 1)) == pytest.approx(0.6621, abs=1e-12)


def test_the_sequence_is_the_closed_form_and_that_of_the_reference(reduction, run):
    found = by_task(reduction, run.product(PATH))
    ends = {
        2: [0.9955255179295147, 0.5234476734620631],
        4: [0.2384744481988832, 1.0998174025948118],
        6: [0.9998550444492188, 0.600676650871011],
    }
    for k, wanted in ends.items():
        np.testing.assert_allclose(found[k], wanted, rtol=0, atol=1e-9)
    sigmas = [np.diag(s) for s in (S_A, S_B, S_A)]
    chained = exact.two_layer_sequence(TS, 0.1 * np.eye(2), 0.1 * np.eye(2), sigmas, SWITCHES)
    np.testing.assert_allclose(found, np.diagonal(chained, axis1=1, axis2=2), rtol=0, atol=1e-9)


def test_it_is_the_flow_of_the_full_network(reduction, run):
    flow = gdln.gradient_flow(reduction.embed(0.1), ABA, TS)
    np.testing.assert_allclose(run.losses, flow.losses, rtol=0, atol=1e-9)
    b, outside = reduction.project(flow, align=False)
    assert max(np.max(share) for share in outside.values()) < 1e-12
    for edge in PATH:
        np.testing.assert_allclose(b[edge], run.b[edge], rtol=0, atol=1e-9)
    # At a switch the losses are those of the new data.
    assert run.losses[2] == reduction.losses(run)[1, 2]


@pytest.mark.slow
def test_derivatives_by_switching_times(reduction):
    # At the end and at a time within the last phase but one.
    ts = np.array([0.0, 7.0, 14.0])

    @jax.jit
    def modes(times):
        solved = reduction.with_times(times).solve(0.1, ts, adjoint=diffrax.ForwardMode())
        return solved.product(PATH)[1:]

    at, along = jnp.array(SWITCHES), jnp.array([1.0, 0.0])
    _, slope = jax.jvp(modes, (at,), (along,))
    wanted = [1.4727386351381701e-05, -2.5754308597971254e-07]
    np.testing.assert_allclose(by_task(reduction, slope[1]), wanted, rtol=1e-5)
    h = 1e-4
    difference = (modes(at + h * along) - modes(at - h * along)) / (2 * h)
    np.testing.assert_allclose(slope[0], difference[0], rtol=1e-5)
    # Without the velocity of B after the switch the derivative is another one.
    _, later = jax.jvp(modes, (at,), (jnp.ones(2),))
    assert np.all(np.abs(later[1] / slope[1] - 1) > 0.3)


@pytest.mark.slow
def test_a_quotient_holds_in_all_phases(reduction, run):
    quotient = reduction.quotient(0.1)
    assert quotient.classes == (PATH,)
    solved = quotient.solve(TS)
    np.testing.assert_allclose(solved.b[PATH[1]], run.b[PATH[1]], rtol=0, atol=1e-9)
    np.testing.assert_allclose(quotient.losses(solved), reduction.losses(run), rtol=0, atol=1e-9)
    assert "3 phases" in repr(quotient)


def test_classes_that_one_phase_alone_would_merge_stay_apart():
    # In the first phase both pathways carry the same; in the second one is closed.
    edges = [("x", "p"), ("x", "q"), ("p", "y"), ("q", "y")]
    graph = Graph({"x": 2, "p": 2, "q": 2, "y": 2}, edges)
    x, y = np.sqrt(2) * np.eye(2), np.sqrt(2) * np.diag([1.0, 0.5])
    both = GatedData({"x": x}, {"y": y})
    one = GatedData({"x": x}, {"y": y}, {"q": np.zeros(2)})
    schedule = Schedule([both, one], [1.0])
    reduction = gdln.reduce(graph, schedule)
    assert len(reduction.parts[0].quotient(0.1).classes) == 1
    assert len(reduction.quotient(0.1).classes) == 2


@pytest.mark.slow
def test_an_opposite_task_has_to_be_unlearned_and_learned_again():
    # Relearning takes |s_B|/s_A longer per unit of time: b falls to 4e-5 and keeps its digits.
    graph, ts = Graph.chain([1, 1, 1]), np.array([0.0, 12.0, 28.0])
    one, other = (GatedData({"x": np.eye(1)}, {"y": s * np.eye(1)}) for s in (1.0, -0.5))
    solved = gdln.reduce(graph, Schedule([one, other], [12.0])).solve(0.1, ts)
    a, wanted = np.ravel(solved.product(PATH)), exact.linear_mode(12.0, 1.0, 1.0, 0.01)
    assert a[1] == pytest.approx(float(wanted), rel=1e-9)
    assert a[2] == pytest.approx(float(exact.linear_mode(16.0, -0.5, 1.0, wanted)), rel=1e-8)
    assert a[2] < 1e-7


class TestDisagreement:
    turned = task([1.0, 0.5], turn=TURN)
    unsound = task([1.0, 0.5], turn=TURN, xx=np.array([[1.0, 0.3], [0.3, 2.0]]))

    def test_the_phases_are_named(self):
        with pytest.raises(gdln.InexactReductionError, match=r"phases \(0, 2\) have no fra") as e:
            gdln.reduce(GRAPH, Schedule([A, B, self.turned], [1.0, 2.0]))
        assert e.value.phases == (0, 2)
        with pytest.raises(gdln.InexactReductionError, match=r"phases \(1,\) .* of their own") as e:
            gdln.reduce(GRAPH, Schedule([A, self.unsound], [1.0]))
        assert e.value.phases == (1,)

    @pytest.mark.slow
    def test_the_coupled_form_is_exact_in_every_phase(self):
        ts = np.array([0.0, 1.5, 4.0, 6.0])
        schedule = Schedule([A, self.turned, self.unsound], [2.0, 4.5])
        reduction = gdln.reduce(GRAPH, schedule, on_inexact="coupled")
        assert reduction.residual < 1e-12
        flow = gdln.gradient_flow(reduction.embed(0.1), schedule, ts)
        np.testing.assert_allclose(reduction.solve(0.1, ts).losses, flow.losses, rtol=0, atol=1e-9)

    def test_what_no_reduction_takes_is_refused(self):
        with pytest.raises(ValueError, match="switches at steps, but reduce counts times"):
            gdln.reduce(GRAPH, Schedule([A, B], steps=[5]))
        tied = Graph({"x": 2, "h": 2, "y": 2}, [("x", "h"), ("h", "y")], frozen=["h->y"])
        with pytest.raises(ValueError, match="without tied"):
            gdln.reduce(tied, Schedule([A, B], [5.0]))
        with pytest.raises(ValueError, match=r"expected \(2,\)"):
            gdln.reduce(GRAPH, ABA).with_times([1.0])


class TestForgetting:
    def test_the_reference(self, reduction, run):
        found = measures.forgetting(run, reduction, level=0.3)
        wanted = {
            "backward": 0.4119291611472249,
            "forward": -0.12946328254333483,
            "t_learn": 2.425100623790808,
            "t_relearn": 0.4031502306236388,
            "savings": 0.8337593802629713,
        }
        for name, value in wanted.items():
            assert float(getattr(found, name)) == pytest.approx(value, abs=1e-9), name
        assert found.reasons == ()
        assert found.losses.shape == (2, 7)
        assert "savings=0.833759" in repr(found)

    @pytest.mark.slow
    def test_of_networks_the_times_are_interpolated(self, reduction):
        ts = np.union1d(TS, np.linspace(0, 14, 141))
        solved = reduction.solve(0.1, ts)
        networks = reduction.parts[0].networks(solved)
        exactly = measures.forgetting(solved, reduction)
        found = measures.forgetting((ts, networks), ABA)
        assert float(found.level) == pytest.approx(0.7641 / 2, abs=1e-12)
        assert float(found.backward) == pytest.approx(float(exactly.backward), abs=1e-9)
        assert float(found.t_learn) == pytest.approx(float(exactly.t_learn), abs=2e-3)
        assert float(found.savings) == pytest.approx(float(exactly.savings), abs=2e-3)

    def test_what_does_not_exist_has_a_reason(self, reduction, run):
        low = measures.forgetting(run, reduction, level=0.05)
        assert np.isnan(low.savings)
        assert [reason.split(":")[0] for reason in low.reasons] == ["t_learn", "t_relearn"]
        high = measures.forgetting(run, reduction, level=0.6)
        assert (float(high.t_relearn), float(high.savings)) == (0.0, 1.0)
        last = measures.forgetting(run, reduction, first=1, second=2)
        assert last.reasons == ("t_relearn: no later phase has the data of the first again",)

    def test_refusals(self, reduction, run):
        with pytest.raises(ValueError, match="numbers of phases in order"):
            measures.forgetting(run, reduction, first=1, second=1)
        with pytest.raises(ValueError, match="needs that ReducedSchedule"):
            measures.forgetting(run, ABA)
        unsaved = reduction.solve(0.1, np.where(TS == 5.0, 4.0, TS))
        with pytest.raises(ValueError, match="no record at 5, where phase 1 begins"):
            measures.forgetting(unsaved, reduction)


def test_coherence_has_two_overlaps():
    # N_f = 240, N_o = 160; numpy default_rng(1), 8 draws: the item overlap at 2 is .8210 +- .0069,
    # the feature overlap .7762 +- .0062 (an independent computation).
    found = measures.coherence(np.array([1.2, 2.0, 0.5]), 160, 240)
    np.testing.assert_allclose(found.threshold, (2 / 3) ** 0.25)
    np.testing.assert_allclose(found.seen[:2], [1.8893463498336216, 2.41522945769824])
    np.testing.assert_allclose(found.item_overlap, [0.46378340365682136, 0.8214285714285714, 0])
    np.testing.assert_allclose(found.feature_overlap, [0.40042501517911355, 0.7666666666666666, 0])
    u, v = np.eye(240)[0], np.eye(160)[0]
    rng, items, features = np.random.default_rng(1), [], []
    for _ in range(8):
        noisy = 2 * np.outer(u, v) + rng.normal(size=(240, 160)) / np.sqrt(240)
        left, _, right = np.linalg.svd(noisy, full_matrices=False)
        items.append((right[0] @ v) ** 2)
        features.append((u @ left[:, 0]) ** 2)
    errors = [3 * np.std(x, ddof=1) / np.sqrt(8) for x in (items, features)]
    assert abs(np.mean(items) - found.item_overlap[1]) < errors[0]
    assert abs(np.mean(features) - found.feature_overlap[1]) < errors[1]
    assert abs(np.mean(items) - found.feature_overlap[1]) > errors[0]
    with pytest.raises(ValueError, match="features is -1"):
        measures.coherence(1.0, 2, -1)


@pytest.mark.slow
def test_ties_are_those_that_all_phases_need():
    # H Fig. 5 on the residual is exact while pathways are equal (E16); so are half of its targets.
    task = gdln.tasks.semantic_contexts(3, residual=True, width=8)
    assert isinstance(task.data, GatedData)
    halves = eqx.tree_at(
        lambda d: d.targets, task.data, {k: v / 2 for k, v in task.data.targets.items()}
    )
    schedule, ts = Schedule([task.data, halves], [1.0]), np.array([0.0, 0.5, 2.0])
    reduction = gdln.reduce(task.graph, schedule)
    assert reduction.residual < 1e-10
    assert reduction.parts[0].ties == reduction.parts[1].ties
    assert reduction.parts[0].untied_residual > 0.1
    run = reduction.solve(0.1, ts)
    flow = gdln.gradient_flow(reduction.embed(0.1), schedule, ts, keep_models=False)
    np.testing.assert_allclose(run.losses, flow.losses, rtol=0, atol=1e-8 * float(flow.losses[0]))
