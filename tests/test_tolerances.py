"""Default solvers and tolerances: the table of the docs against the code; kinks of ReLU units."""

import re
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

import gdln_jax as gdln
from gdln_jax import gates, race, relu

PAGE = Path(__file__).parent.parent / "docs" / "tolerances.md"
GRAPH = gdln.Graph.chain([2, 2, 2])
EYE = np.eye(2)
DATA = gdln.GatedData({"x": EYE}, {"y": EYE})
# Root mean squares .2 and .1; the entry of rounding size is no scale.
WEIGHTS = [0.2 * np.ones((2, 2)), np.array([[0.2, 1e-19], [0, 0]])]


class CaughtError(Exception):
    """Solver and tolerances, instead of a solution."""


def _caught(control, terms, t0, t1, y0, dt0, args, func, error_order):
    raise CaughtError(func.__self__, float(control.rtol), float(control.atol))


def _calls(dtype):
    """Row of the table -> calls, from matrices of scale .1 and strengths of .1."""

    def cast(tree):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), tree)

    data, ts = cast(DATA), [0.0, 1.0]
    net = gdln.GatedNetwork(GRAPH, dict(zip(("x->h1", "h1->y"), cast(WEIGHTS), strict=True)))
    theory, start, ones = gdln.reduce(GRAPH, data), cast(np.array([0.3, 0.1])), cast(np.ones(2))

    def time(y0):
        ode, first = lambda _, y, __: y, lambda _, y, __: y[0].sum()
        return gdln.time_to(9.0, ode=ode, y0=y0, measure=first, t1=1.0)

    forced = race.LotkaVolterra(ones, drive=lambda t: 0.0 * t)
    return {
        "gradient_flow": [lambda: gdln.gradient_flow(net, data, ts)],
        "gradient_flow with kinks": [
            lambda: gdln.gradient_flow(gdln.ReLUNetwork(cast(WEIGHTS)), data, ts)
        ],
        "Reduction.solve, Quotient.solve": [
            lambda: theory.solve(start, ts),
            lambda: theory.quotient(start).solve(ts),
        ],
        "time_to of an ODE": [lambda: time(net.stacks), lambda: time([start])],
        "gates.learning_time, gates.output_gap": [
            lambda: gates.learning_time(net, data, 0.1, t1=1.0),
            lambda: gates.output_gap(net, data, ts, {"y": np.zeros((2, 2, 2))}),
        ],
        "race.LotkaVolterra.solve": [lambda: forced.solve(start, ts)],
        "race.Pathways.solve": [lambda: race.Pathways(ones, cast(EYE)).solve(start, ts)],
        "relu.head_start": [
            lambda: relu.head_start(cast(EYE), cast(0.5 * EYE[None]), ones[:1], ones[:1], start[1:])
        ],
    }


@pytest.fixture
def chosen(monkeypatch):
    """A function that returns solver, rtol and atol of a call, which ends there."""
    monkeypatch.setattr(diffrax.PIDController, "init", _caught)
    # Without jit the reduction keeps NumPy's arrays, where it says that they are JAX's.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)

    def chosen(call):
        with jax.disable_jit(), pytest.raises(CaughtError) as caught:
            call()
        solver, rtol, atol = caught.value.args
        return type(solver).__name__, rtol, atol

    return chosen


@pytest.mark.slow
def test_the_table_of_the_docs_is_what_the_code_does(chosen):
    six = r"^\| (`[^|]*) \|((?:[^|]*\|){5})$"
    table = re.findall(six, PAGE.read_text("utf-8"), flags=re.MULTILINE)
    rows = {k.replace("`", ""): [c.strip() for c in v.split("|")[:5]] for k, v in table}
    for precision, dtype in enumerate((jnp.float64, jnp.float32)):
        with jax.enable_x64(dtype == jnp.float64):
            calls = _calls(dtype)
            assert list(calls) == list(rows)
            for name, (*columns, rule) in rows.items():
                for call in calls[name]:
                    solver, rtol, atol = chosen(call)
                    assert solver == columns[precision], name
                    if rule.startswith("none"):  # the straight variable's own error counts
                        rtol, atol = max(rtol, atol), None
                    assert rtol == pytest.approx(float(columns[2 + precision])), name
                    factor = 1e-3 if rule.startswith("1e-3 rtol") else 0.1
                    assert atol is None or atol == pytest.approx(factor * rtol), name


def test_the_scale_of_a_start(chosen):
    # Zeros and stacks do not count; float32 squares would vanish.
    graph = gdln.Graph.chain([2, 2, 2, 2])
    small = [np.zeros((2, 2)), 3e-30 * np.ones((2, 2)), EYE]
    for dtype in (np.float64, np.float32):
        with jax.enable_x64(dtype == np.float64):
            weights = [jnp.asarray(w, dtype) for w in small]
            net = gdln.GatedNetwork(graph, dict(zip(graph.edge_index, weights, strict=True)))
            data = jax.tree.map(lambda a, d=dtype: jnp.asarray(a, d), DATA)
            _, rtol, atol = chosen(lambda n=net, d=data: gdln.gradient_flow(n, d, [0.0, 1.0]))
            assert atol / rtol == pytest.approx(3e-30)
    large = gdln.GatedNetwork(GRAPH, {"x->h1": np.zeros((2, 2)), "h1->y": 7 * np.ones((2, 2))})
    _, rtol, atol = chosen(lambda: gdln.gradient_flow(large, DATA, [0.0, 1.0]))
    assert atol / rtol == pytest.approx(1)  # at most


class TestKinks:
    DATA = gdln.GatedData(
        {"x": np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])}, {"y": [[-1.0], [1], [1], [-1]]}
    )
    NET = gdln.ReLUNetwork.init([2, 20, 1], std=0.01, key=jax.random.key(0))

    def test_xor_is_learned_at_the_defaults(self):
        # Units rest on their kinks: 200,000 steps of Dopri8 at 1e-10 do not get here.
        ts = np.linspace(0, 20, 5)
        flow = gdln.gradient_flow(self.NET, self.DATA, ts, keep_models=False)
        step = 2e-3
        descent = gdln.train(
            self.NET, self.DATA, optimizer=optax.sgd(step), steps=10_000, save_every=2500,
            keep_models=False,
        )  # fmt: skip
        # Of first order in the step, and 5 rtol.
        np.testing.assert_allclose(flow.losses, descent.losses, atol=5e-3)
        assert float(flow.losses[-1]) < 1e-5
        assert sum(int(n) for n in flow.stats.values()) < 10_000

    def test_giving_up_names_the_kinks(self):
        with pytest.raises(RuntimeError, match=r"most steps go into kinks.* loosen rtol"):
            gdln.gradient_flow(self.NET, self.DATA, [0.0, 20.0], rtol=1e-9, max_steps=500)

    def test_also_of_a_model_that_does_not_say_so(self):
        # |w|: the velocity jumps at 0, where w comes to rest.
        with pytest.raises(RuntimeError, match="Most steps were rejected, as at kinks"):
            gdln.gradient_flow(
                jnp.array([0.3, 0.5]), None, [0.0, 9.0], loss=lambda w, _: jnp.sum(jnp.abs(w)),
                max_steps=2000,
            )  # fmt: skip

    def test_which_models_have_kinks(self, chosen):
        class Mine(eqx.Module):
            w: jax.Array
            kinks = True

        def solver(model):
            def loss(model, _):
                return jnp.sum(jnp.stack([jnp.sum(w**2) for w in jax.tree.leaves(model)]))

            return chosen(lambda: gdln.gradient_flow(model, None, [0.0, 1.0], loss=loss))[0]

        smooth = gdln.GatedNetwork.init(GRAPH, gdln.init.normal(0.1), key=jax.random.key(0))
        assert solver(smooth) == solver({"one": smooth}) == "Dopri8"
        assert solver(self.NET) == "Bosh3"
        assert solver({"one": smooth, "two": [self.NET]}) == "Bosh3"
        assert solver((Mine(jnp.ones(2)), smooth)) == "Bosh3"
