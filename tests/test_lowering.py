"""Every main program compiles for GPUs and TPUs in both precisions, without host callbacks.

First calls compile few programs. Lowered only: no such device is needed. An extension with a
program of its own adds a line.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from image_parts import _step
from jax import export

import gdln_jax as gdln

# Private: the public trainer is a loop on the host around this program.

TS = np.linspace(0.0, 3.0, 4)


def _image_step() -> "Program":
    net = gdln.images.RoutedNetwork.init(
        2, 3, 2, width=3, key=jax.random.key(0), dtype=str(jnp.ones(()).dtype)
    )
    table = _step.route_table(np.eye(2, dtype=bool))
    rates = jnp.asarray(0.1), jnp.asarray(0.9), jnp.asarray(1.0)
    images, labels = jnp.ones((2, 4, 3)), jnp.zeros((2, 4), int)
    return lambda net: _step.step(net, net, images, labels, table, rates, "mse"), (net,)


Program = tuple[Callable[..., object], tuple[object, ...]]


def programs() -> dict[str, Program]:
    """Functions of arrays, and their arguments, in the precision of the moment."""
    task = gdln.tasks.routing(2, 2)
    graph, data = task.graph, task.data

    def draw(key: jax.Array) -> gdln.GatedNetwork:
        return gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.2), key=key)

    net = draw(jax.random.key(0))
    reduction = gdln.reduce(graph, data, tol=1e-4)
    b0 = gdln.effective_initial(reduction, net).strengths
    optimizer = optax.sgd(0.1, momentum=0.9)

    def training(net: gdln.GatedNetwork) -> jax.Array:
        return gdln.train(net, data, optimizer=optimizer, steps=4, progress=False).losses

    def flow(net: gdln.GatedNetwork) -> jax.Array:
        return gdln.gradient_flow(net, data, TS, progress=False).losses

    def reduced_training(b0: gdln.ModeStrengths) -> jax.Array:
        return reduction.train(b0, rule=gdln.rules.sgd(0.1), steps=4, check_end=False).losses

    heads = gdln.tasks.linear_attention([1.0, 0.5], context=5)
    tied = gdln.GatedNetwork.init(heads.graph, gdln.init.normal(0.1), key=jax.random.key(4))
    assert isinstance(data, gdln.GatedData)
    in_turn = gdln.Schedule([data, data], times=[1.0])
    phases = gdln.reduce(graph, in_turn, tol=1e-4)
    chain = gdln.Graph.chain([3, 20, 2])
    wide = gdln.GatedNetwork.init(chain, gdln.init.orthogonal(0.1), key=jax.random.key(1))
    small = gdln.reduce_width(wide, gdln.GatedData({"x": np.eye(3)}, {"y": np.eye(3)[:, :2]}))
    return {
        "initialisers": (draw, (jax.random.key(2),)),
        "train": (training, (net,)),
        "flow": (flow, (net,)),
        "reduced solve": (lambda b: reduction.solve(b, TS).losses, (b0,)),
        "learning time": (lambda b: reduction.time_to(0.1, b, t1=3.0).time, (b0,)),
        "reduced training": (reduced_training, (b0,)),
        "tasks in turn": (lambda b: phases.solve(b, TS).losses, (b0,)),
        "flow of tasks in turn": (
            lambda net: gdln.gradient_flow(net, in_turn, TS, progress=False).losses,
            (net,),
        ),
        "attention": (
            lambda net: gdln.train(net, heads.data, optimizer=optimizer, steps=4).losses,
            (tied,),
        ),
        "width-reduced training": (
            lambda net: gdln.train(net, small.data, optimizer=optimizer, steps=4).losses,
            (small.net,),
        ),
        "a sweep's program": (
            jax.vmap(lambda key: training(draw(key))),
            (jax.random.split(jax.random.key(3), 2),),
        ),
        "singular values": (gdln.measures.singular_values, (net.stacks[0],)),
        "image step": _image_step(),
    }


@pytest.mark.parametrize("bits", [64, 32])
def test_main_programs_compile_for_every_accelerator(bits: int) -> None:
    with jax.enable_x64(bits == 64):
        for name, (program, args) in programs().items():
            lowered = export.export(jax.jit(program), platforms=("cuda", "rocm", "tpu"))(*args)
            text = lowered.mlir_module()
            assert "callback" not in text, name
            assert ("f64" in text) == (bits == 64), name


@contextmanager
def compiled() -> Iterator[list[str]]:
    """Names of the programs that are compiled, or taken from disk, meanwhile."""
    names: list[str] = []

    def listener(event: str, duration_secs: float, **known: object) -> None:
        del duration_secs
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(known.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


def test_first_calls_compile_few_programs() -> None:
    # Operation by operation these were 60, 25, and one for each of five shapes.
    graph = gdln.Graph.chain([3, 7, 5, 8, 6, 3])  # of shapes that no other test of the file has
    data = gdln.GatedData({"x": np.eye(3)}, {"y": np.diag([3.0, 2.0, 1.0])})
    key = jax.random.key(0)
    with compiled() as drawn:
        net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.3), key=key)
    assert drawn == ["jit(_numbers)"]  # orthonormal in NumPy, without a program for each shape
    reduction = gdln.reduce(graph, data)
    with compiled() as names:
        b = gdln.effective_initial(reduction, net).strengths
    assert names in ([], ["jit(_take)"])  # of the type check, which reads an entry
    for loss in (lambda: gdln.mse(net, data), lambda: reduction.loss(b)):
        with compiled() as names:
            loss()
        assert 0 < len(names) <= 4, names
    with compiled() as names:  # operation by operation 94
        jax.grad(gdln.mse)(net, data)
    assert len(names) <= 40, names


def test_another_number_of_times_compiles_no_solve_anew() -> None:
    task = gdln.tasks.routing(2, 2)
    net = gdln.GatedNetwork.init(task.graph, gdln.init.orthogonal(0.2), key=jax.random.key(0))
    reduction = gdln.reduce(task.graph, task.data)
    b0 = gdln.effective_initial(reduction, net).strengths
    assert isinstance(task.data, gdln.GatedData)
    schedule = gdln.Schedule([task.data, task.data], times=[1.0])
    phases = gdln.reduce(task.graph, schedule)
    assert isinstance(phases, gdln.ReducedSchedule)
    kept = gdln.gradient_flow(net, task.data, TS[::3], keep_models=True, progress=False)
    runs = [reduction.solve(b0, TS[::3]), phases.solve(b0, TS[::3]), kept]
    with compiled() as names:
        more = [reduction.solve(b0, TS), phases.solve(b0, TS)]
        more += [gdln.gradient_flow(net, task.data, TS, keep_models=True, progress=False)]
    # What is compiled cuts results to their lengths.
    assert not [name for name in names if "solve" in name or "phase" in name], names
    for few, many in zip(runs, more, strict=True):
        assert all(leaf.shape[0] == 4 for leaf in (many.ts, many.losses))
        np.testing.assert_array_equal(many.ts, TS)
        np.testing.assert_allclose(many.losses[::3], few.losses, rtol=1e-8)
    for run, length in ((kept, 2), (more[-1], 4)):
        assert {w.shape[0] for w in jax.tree.leaves(run.models)} == {length}


def test_gates_that_close_or_coincide_compile_no_solve_anew() -> None:
    task = gdln.tasks.routing(2, 2)
    graph, data = task.graph, task.data
    assert isinstance(data, gdln.GatedData)

    def gated(value: float, other: float) -> gdln.GatedData:
        factors = {"x0->h1": value, "x1->h1": other}
        gates = {name: data.edge_gates[name] * factor for name, factor in factors.items()}
        return gdln.gates.with_gates(data, edge_gates=gates)

    first = gdln.reduce(graph, gated(0.5, 0.8))
    b = first.strengths_of(0.4)
    opened = gdln.reduce(graph, gated(0.3, 0.9), like=first)
    opened.solve(b, TS, progress=False)
    for gates in ((0.0, 0.8), (1.0, 1.0), (0.7, 0.7)):
        plain = gdln.reduce(graph, gated(*gates))
        reduction = gdln.reduce(graph, gated(*gates), like=first)
        with compiled() as names:
            run = reduction.solve(b, TS, progress=False)
        assert names == []
        assert reduction.residual < 1e-12
        at_gates = {name: np.asarray(b[name]) for name in b}
        np.testing.assert_allclose(reduction.loss(b), plain.loss(at_gates), rtol=1e-12)
        merged = reduction.quotient(0.4)
        assert merged.classes == plain.quotient(0.4).classes
        np.testing.assert_allclose(merged.loss(merged.x0), reduction.loss(b), rtol=1e-12)
        np.testing.assert_allclose(run.losses[0], reduction.loss(b), rtol=1e-12)
    closed = gdln.reduce(graph, gated(0.0, 0.8))
    with pytest.raises(gdln.InexactReductionError):  # the closed path has no frames
        gdln.reduce(graph, data, like=closed)
    with pytest.raises(ValueError, match="like must be the reduction of other data"):
        gdln.reduce(gdln.Graph.chain([8, 3, 8]), data, like=first)
    with pytest.raises(ValueError, match="like= is for GatedData"):
        gdln.reduce(graph, first.data, like=first)
