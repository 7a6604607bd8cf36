"""In-context regression by linear attention (theory#attention).

Known answers: the matrix form of attention on sampled contexts; the keys `attention*` of
reference_beyond.json; rotated moments, which must be refused; for a head of rank 2, which no
reduction of separate modes holds, its own equations and the full flow.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_tied_reduction import share_off, turn

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, Graph, exact, init, tasks

# One program: op by op, each network compiles a hundred.
outputs = jax.jit(lambda net, data: net(data)["y"][:, 0])
LAM, OMEGA, CONTEXT, NOISE = np.array([1.5, 1.0, 0.4]), np.array([1.0, 0.7, 1.3]), 20, 0.1
S = LAM**2 * OMEGA


def make(**more):
    return tasks.linear_attention(LAM, context=CONTEXT, tasks=OMEGA, noise=NOISE, **more)


@pytest.fixture(scope="module")
def task():
    return make()


@pytest.fixture(scope="module")
def reduction(task):
    return gdln.reduce(task.graph, task.data, **task.meta["reduce"])


@pytest.fixture(scope="module")
def case(reference_beyond):
    return reference_beyond["tied"]["attention"]


def strengths(task, of_head):
    """b of every parameter: one value (component,) per head in all its factors."""
    return {name: of_head[int(name[1:].split("_")[0])] for name in task.graph.parameters}


class TestTask:
    def test_the_graph_is_the_matrix_form_of_attention(self):
        sampled = make(contexts=50, key=jax.random.key(0))
        net = GatedNetwork.init(sampled.graph, init.normal(1.0), key=jax.random.key(1))
        p = {name: np.asarray(w) for name, w in net.parameters.items()}
        c = {name: np.asarray(x) for name, x in sampled.meta["contexts"].items()}
        heads = range(3)
        v = np.array([p[f"v{h}"][0, 0] for h in heads])
        k = np.array([[p[f"k{h}_{i}"][0, 0] for i in range(3)] for h in heads])
        q = np.array([p[f"q{h}"][0] for h in heads])

        def attention(k, q):
            """Values of labels, weighed by the products of keys of inputs and the query's."""
            scores = np.einsum("cni,hi,hj,cj->chn", c["x"], k, q, c["query"])
            return np.einsum("h,chn,cn->c", v, scores, c["y"]) / CONTEXT

        found = np.asarray(outputs(net, sampled.data))
        size = np.abs(found).max()
        assert np.abs(found - attention(k, q)).max() < 1e-13 * size
        assert np.abs(found - attention(q, k)).max() > 0.5 * size
        merged = make(contexts=50, merged=True, heads=3, key=jax.random.key(0))
        net = GatedNetwork(
            merged.graph, {"z->c": np.einsum("hi,hj->hij", k, q).reshape(3, 9), "c->y": v[None]}
        )
        assert np.abs(np.asarray(outputs(net, merged.data)) - found).max() < 1e-13 * size

    def test_sizes_of_the_factors_of_a_head_differ_by_constants(self, task):
        """v^2 - |k|^2 and |k|^2 - |q|^2 are conserved: velocities are equal, from any start."""
        net = GatedNetwork.init(task.graph, init.normal(0.7), key=jax.random.key(5))
        gradient = jax.jit(jax.grad(gdln.mse))(net, task.data)
        power = {
            name: np.sum(np.asarray(w) * np.asarray(gradient.parameters[name]))
            for name, w in net.parameters.items()
        }
        for h in range(3):
            key = sum(power[f"k{h}_{i}"] for i in range(3))
            np.testing.assert_allclose([power[f"v{h}"], power[f"q{h}"]], key, rtol=1e-12)

    @pytest.mark.slow
    def test_population_moments_are_those_of_many_contexts(self, task):
        assert task.data.num_examples == 10
        how = {"context": 8, "tasks": OMEGA[:2], "noise": NOISE, "merged": True}
        sample = {"contexts": 200_000, "key": jax.random.key(3)}
        many = tasks.linear_attention(LAM[:2], **how, **sample).data
        population = tasks.linear_attention(LAM[:2], **how).data

        def moments(data):
            joint = np.hstack([data.inputs["z"], data.targets["y"]])
            return joint.T @ (np.asarray(data.weights)[:, None] * joint)

        seen, exactly = moments(many), moments(population)
        size = np.linalg.norm(seen)
        assert np.linalg.norm(seen - exactly) < 0.03 * size
        # Without the fourth moments of inputs, Lambda Omega Lambda / N in Gamma.
        exactly[:4, :4] -= np.diag(np.kron(S[:2] / 8, LAM[:2]))
        assert np.linalg.norm(seen - exactly) > 0.05 * size

    def test_matrices_are_taken_in_their_common_basis(self, task):
        frame = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
        order = [2, 0, 1]
        turned = tasks.linear_attention(
            (frame * LAM[order]) @ frame.T,
            context=CONTEXT,
            tasks=(frame * OMEGA[order]) @ frame.T,
            noise=NOISE,
        )
        np.testing.assert_allclose(turned.meta["strengths"], S, rtol=1e-12)
        np.testing.assert_allclose(turned.meta["plateaus"], task.meta["plateaus"], rtol=1e-12)
        overlap = np.abs(turned.meta["basis"].T @ frame[:, np.argsort(order)])
        np.testing.assert_allclose(overlap, np.eye(3), atol=1e-12)
        for key, value in task.data.inputs.items():
            power = np.asarray(turned.data.inputs[key]).T @ turned.data.inputs[key]
            np.testing.assert_allclose(power, np.asarray(value).T @ value, atol=1e-11)

    def test_what_is_refused(self, refused_plainly):
        refused_plainly("""
import numpy as np
from gdln_jax import exact, tasks
def g(lam=(1.0, 0.5), **more):
    return lambda: tasks.linear_attention(list(lam), **{"context": 10, **more})
turn = np.array([[0.8, -0.6], [0.6, 0.8]])
attempts = [
    (g(rank=2), "k_m' = v q_m r_m"),
    (g(tasks=turn @ np.diag([1.0, 0.5]) @ turn.T), "do not commute"),
    (g(tasks=[1.0, 2.0, 3.0]), "covariance is of 2 inputs and tasks of 3"),
    (g((1.0, 0.0)), "eigenvalues above 0"),
    (g(noise=-0.1), "it is a variance"),
    (g(assign=[0, 2]), "a component, 0 to 1"),
    (g(merged=True, assign=[0, 1]), "not for merged=True"),
    (g(noise=np.array([0.1, 0.2])), "one finite number of at least 0"),
    (g(assign=0), "assign is 0; give each of the 2 heads a component"),
    (g(assign=[0]), "or change heads="),
    (g(key=1), "key is given and contexts is not"),
    (lambda: tasks.linear_attention(turn, context=10), "differs from its transpose by 1.2e+00"),
    (lambda: exact.attention_time(0.5, 1.0, 1.0, -0.1), "b0 is -0.1; it must be at least 0"),
    (lambda: exact.attention_time(0.5, -1.0, 1.0, 0.1), "s is -1.0"),
    (lambda: exact.attention_time(0.5, 1.0, np.nan, 0.1), "d is nan"),
    (lambda: exact.attention_moments(1.0, 5), "lam has shape () and tasks ()"),
    (lambda: exact.attention_plateaus(np.ones(2), 5, np.ones(3)), "(2,) and tasks (3,)"),
    (lambda: exact.attention_merged(1.0, -1.0, 3, 5, 0.1), "lam is -1.0"),
    (lambda: exact.attention_merged(1.0, 1.0, 3, 0, 0.1), "context is 0.0; it must be at least 1"),
    (lambda: exact.attention_merged(1.0, 1.0, 0, 5, 0.1), "dim is 0.0"),
    (lambda: exact.attention_merged(1.0, 1.0, 3, 5, 0.1, 1.0, -1.0), "noise is -1.0"),
    (g(contexts=5), "sampled contexts are random"),
    (g(context=0), "context"),
]
""")


class TestReduction:
    def test_exact_with_heads_apart_and_together(self, reduction):
        together = make(assign=(0, 0, 1))
        both = gdln.reduce(together.graph, together.data, **together.meta["reduce"])
        assert max(reduction.residual, both.residual) < 1e-12

    @pytest.mark.slow
    def test_losses_of_the_reference(self, reduction, task, case):
        b0 = strengths(task, [0.10, 0.09, 0.08])
        run = reduction.solve(b0, [float(t) for t in case["L"]])
        np.testing.assert_allclose(run.losses, list(case["L"].values()), atol=1e-9)

    @pytest.mark.parametrize(("degrees", "share"), [(5, 0.082), (10, 0.161), (20, 0.298)])
    def test_a_rotated_covariance_is_refused(self, task, degrees, share):
        """Lambda turned in components 1 and 2, tasks and coordinates kept; b = 1.5 (S/D)^(1/3)."""
        lam = turn(degrees, 3) @ np.diag(LAM) @ turn(degrees, 3).T
        both, power = lam @ np.diag(OMEGA) @ lam, np.trace(lam * OMEGA) + NOISE
        gamma = (1 + 1 / CONTEXT) * both + power * lam / CONTEXT
        xx, yx = np.kron(gamma, lam), both.reshape(1, -1)
        data = GatedData.from_moments({f"X{i}": 3 for i in range(3)}, {"y": 1}, xx, yx, [[power]])
        s, d = task.meta["strengths"], task.meta["variances"]
        b = strengths(task, 1.5 * np.diag(np.cbrt(s / d)))
        off = share_off(task.graph, data, b, **task.meta["reduce"])
        np.testing.assert_allclose(off, share, atol=6e-4)

    def test_sampled_contexts_are_refused(self):
        sampled = make(contexts=500, key=jax.random.key(0))
        with pytest.raises(gdln.InexactReductionError, match="is 100% off-diagonal"):
            gdln.reduce(sampled.graph, sampled.data, **sampled.meta["reduce"])

    def test_merged_is_exact_for_white_inputs_alone(self):
        white = tasks.linear_attention(
            [1.3] * 3, 2, context=10, tasks=[0.8] * 3, noise=0.2, merged=True
        )
        assert gdln.reduce(white.graph, white.data).residual < 1e-12
        coloured = make(merged=True)
        with pytest.raises(gdln.InexactReductionError):
            gdln.reduce(coloured.graph, coloured.data)

    @pytest.mark.slow
    def test_a_head_of_rank_2_follows_its_own_equations(self, task, reference_beyond):
        """One value and two pairs of key and query, on components 1 and 2."""
        reference = reference_beyond["tied"]["attention_rank2"]
        s, d = task.meta["strengths"][:2], task.meta["variances"][:2]

        def velocity(_, z):
            v, k, q = z[0], z[1:3], z[3:]
            rest = s - d * v * k * q
            return np.concatenate([[k * q @ rest], v * q * rest, v * k * rest])

        start = [0.1, 0.1, 0.12, 0.11, 0.09]
        run = solve_ivp(velocity, (0, 20), start, t_eval=[10, 20], rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(run.y[:, 0], reference["t10"], rtol=1e-8)
        np.testing.assert_allclose(run.y[:, 1], reference["t20"], rtol=1e-8)
        graph = Graph(
            {**{f"X{i}": 3 for i in range(3)}, **{f"a{i}": 2 for i in range(3)}, "c": 1, "y": 1},
            [(f"X{i}", f"a{i}") for i in range(3)]
            + [(f"a{i}", "c") for i in range(3)]
            + [("c", "y")],
            shared={"q": [f"X{i}->a{i}" for i in range(3)]},
        )
        weights = {"q": np.diag([0.11, 0.09]) @ np.eye(2, 3), "c->y": [[0.1]]}
        weights |= {f"a{i}->c": [k] for i, k in enumerate(([0.1, 0], [0, 0.12], [0, 0]))}
        net = GatedNetwork(graph, {name: np.array(w) for name, w in weights.items()})
        end = gdln.gradient_flow(net, task.data, [0.0, 20.0], rtol=1e-10).final.parameters
        found = [
            end["c->y"],
            end["a0->c"][:, 0],
            end["a1->c"][:, 1],
            end["q"][0, 0],
            end["q"][1, 1],
        ]
        np.testing.assert_allclose(
            np.ravel([np.ravel(x) for x in found]), reference["t20"], rtol=1e-7
        )
        assert max(abs(end["q"][0, 1]), abs(end["a2->c"]).max()) < 1e-12


class TestClosedForms:
    def test_moments_and_plateaus_of_the_reference(self, task, case):
        s, d, first = exact.attention_moments(LAM, CONTEXT, OMEGA, NOISE)
        np.testing.assert_allclose(s, case["S"], rtol=1e-9)
        np.testing.assert_allclose(d, case["D"], rtol=1e-9)
        np.testing.assert_allclose(task.meta["variances"], d, rtol=1e-12)
        plateaus = exact.attention_plateaus(LAM[::-1], CONTEXT, OMEGA[::-1], NOISE)
        np.testing.assert_allclose(plateaus, case["plateaus"], rtol=1e-9)
        np.testing.assert_allclose(plateaus[0], first, rtol=1e-14)
        # Without the fourth moments the losses are others by 0.03 and more.
        wrong = first - jnp.cumsum(s**2 / (d - S * LAM / CONTEXT)) / 2
        assert jnp.abs(wrong - plateaus[1:]).min() > 0.02
        many = exact.attention_plateaus(LAM, np.array([5, CONTEXT]), OMEGA, np.array([0.0, NOISE]))
        np.testing.assert_allclose(many[1], plateaus, rtol=1e-12)
        nothing = exact.attention_plateaus(jnp.array([1.0, 0.0]), 5, noise=0.3)
        assert nothing[1] == nothing[2]

    def test_times_of_the_reference(self, case):
        s, d, _ = exact.attention_moments(LAM, CONTEXT, OMEGA, NOISE)
        b0, half = np.array([0.10, 0.09, 0.08]), np.cbrt(s / d / 2)
        np.testing.assert_allclose(
            exact.attention_time(half, s, d, b0), case["half_times"], rtol=1e-9
        )
        assert exact.attention_time(0.3, 1.0, 1.0, 0.3) == 0
        assert exact.attention_time(1.2, 1.0, 1.0, 1.4) > 0  # from above
        assert exact.attention_time(1.0, 1.0, 1.0, 0.3, 2.0) == np.inf
        slope = jax.grad(exact.attention_time)(0.6, 2.0, 1.5, 0.3)
        np.testing.assert_allclose(slope, 1 / (0.36 * (2.0 - 1.5 * 0.216)), rtol=1e-12)

    def test_a_time_of_nan_is_nan(self):
        for at in range(4):
            args = [0.5, 1.0, 1.0, 0.1]
            args[at] = np.nan
            assert np.isnan(jax.jit(exact.attention_time)(*args))

    def test_merged_of_the_reference(self, reference_beyond):
        found = reference_beyond["tied"]["attention_merged_white"]["L"]
        t = np.array([float(t) for t in found])
        losses = exact.attention_merged(t, 1.3, 3, 10, 0.0025, 0.8, 0.2)
        np.testing.assert_allclose(losses, list(found.values()), rtol=1e-9)
        white = tasks.linear_attention(
            [1.3] * 3, 1, context=10, tasks=[0.8] * 3, noise=0.2, merged=True
        )
        entry = np.sqrt(0.0025) * np.eye(3).reshape(1, 9) / np.sqrt(3)
        net = GatedNetwork(white.graph, {"z->c": entry, "c->y": [[0.05]]})
        np.testing.assert_allclose(gdln.mse(net, white.data), losses[0], rtol=1e-12)
