"""The networks or strengths of a run, where they are kept: a trajectory, or a sweep's data set."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import listed
from gdln_jax._checks.types import ArrayLike
from gdln_jax._graph import Graph
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._reduction.strengths import ModeStrengths
from gdln_jax._solution import Trajectory

# A start with this share of an edge's weights outside the frames of `embed` counts as embedded:
# rounding leaves 1e-6 in float32, a start drawn at random more than half.
NEAR = 0.01


@runtime_checkable
class DataSet(Protocol):
    """What of an xarray `Dataset` is read."""

    @property
    def data_vars(self) -> Mapping[str, ArrayLike]:
        """Its variables."""
        ...

    @property
    def coords(self) -> Mapping[str, ArrayLike]:
        """Its coordinates."""
        ...


def networks_of(run: GatedNetwork | Trajectory | DataSet, graph: Graph) -> GatedNetwork:
    """Return the networks that `run` holds, with any leading axes.

    Raises:
        ValueError: models that were not kept; a data set without weights of this graph, or with
            several networks.
    """
    if isinstance(run, Trajectory):
        return run._kept_models()
    if isinstance(run, DataSet):
        return _of_data_set(run, graph)[0]
    return run


def run_of(run: Trajectory | DataSet, graph: Graph) -> tuple[GatedNetwork, Array]:
    """Return the networks of a run at its times, and these times (..., time).

    Raises:
        ValueError: as `networks_of`; what is no run; networks without times.
    """
    if isinstance(run, Trajectory):
        return run._kept_models(), run.ts
    if not isinstance(run, DataSet):
        raise ValueError(
            f"run is a {type(run).__name__}; pass what gradient_flow, train or solve returned, or "
            "the data set of a sweep over them. Single networks: reduction.project(net)."
        )
    models, name = _of_data_set(run, graph)
    held: Mapping[str, ArrayLike] = {**run.coords, **run.data_vars}
    called = "time" if name == "weights[" and "time" in held else _times_beside(name)
    if called not in held:
        raise ValueError(
            f"the data set has no times {called!r} of the networks {name!r}: return the run itself "
            "from the function that is swept, or {'ts': run.ts, 'models': run.models}."
        )
    times = np.asarray(held[called])
    lead = models.stacks[0].shape[:-3]
    if lead[-1:] != times.shape[-1:]:
        raise ValueError(
            f"the data set holds networks at one time each ({name!r}, axes {lead}), not over "
            f"the {times.shape[-1]} times: keep models in the run, or read them by "
            "reduction.project(data_set)."
        )
    return models, jnp.asarray(times)


def strengths_in(data: DataSet, graph: Graph, modes: int) -> tuple[ModeStrengths, Array] | None:
    """Return the strengths that solved runs left in a data set, and their times; None without.

    Either of a `sweep` whose function returned a run of `Reduction.solve` or `Reduction.train`, or
    what `to_xarray` made of one.
    """
    held: Mapping[str, ArrayLike] = {**data.coords, **data.data_vars}
    stores = [store for store in graph.stores if not store.frozen]
    shapes = [(len(store.names), modes) for store in stores]
    for name in map(str, data.data_vars):
        prefix, times = (
            name.removesuffix("b.stacks.0"),
            _times_beside(name.removesuffix("stacks.0")),
        )
        keys = [f"{prefix}b.stacks.{k}" for k in range(len(shapes))]
        if name.endswith("b.stacks.0") and times in held and _fit(data, keys, shapes):
            stacks = tuple(jnp.asarray(np.asarray(held[key])) for key in keys)
            return ModeStrengths(graph, stacks), jnp.asarray(np.asarray(held[times]))
    edges = [str(edge) for edge in np.asarray(held.get("edge", ()))]
    if "b" in data.data_vars and "time" in held and set(edges) == set(graph.trainable):
        rows = np.moveaxis(np.asarray(held["b"]), -3, 0)  # (edge, ..., time, mode)
        by_edge = dict(zip(edges, rows, strict=True))
        groups = [np.stack([by_edge[name] for name in store.names], -2) for store in stores]
        stacks = tuple(jnp.asarray(group) for group in groups)
        return ModeStrengths(graph, stacks), jnp.asarray(np.asarray(held["time"]))
    return None


def _times_beside(name: str) -> str:
    """The variable with the times of the run of which "run.models." or "run.b." is a part."""
    beside = name.removesuffix(".").rpartition(".")[0]
    return f"{beside}.ts" if beside else "ts"


def _of_data_set(data: DataSet, graph: Graph) -> tuple[GatedNetwork, str]:
    """The networks of a data set, and the part of their variables' names that they share."""
    names = [str(name) for name in data.data_vars]
    found: dict[str, GatedNetwork] = {}
    shapes = [(len(store.names), *store.shape) for store in graph.stores]
    for name in names:
        if name.endswith("stacks.0"):
            prefix = name.removesuffix("stacks.0")
            moving = sum(not store.frozen for store in graph.stores)
            keys = [f"{prefix}stacks.{k}" for k in range(moving)]
            keys += [f"{prefix}fixed.{k}" for k in range(len(shapes) - moving)]
            if _fit(data, keys, shapes) and f"{prefix}stacks.{moving}" not in names:
                arrays = tuple(jnp.asarray(np.asarray(data.data_vars[key])) for key in keys)
                found[prefix] = GatedNetwork.from_stacks(graph, arrays)
    first = next(iter(graph.edge_index))
    for name in names:
        prefix, edge, end = name.rpartition(first)
        keys = {each: f"{prefix}{each}{end}" for each in graph.edge_index}
        if edge and _fit(data, list(keys.values()), list(map(graph.shape, keys))):
            found[prefix] = _by_edge(data, graph, keys)
    held = {name: net for name, net in found.items() if "optimizer_state" not in name}
    over_time = [name for name in held if name.endswith("models.")]
    if len(over_time) == 1 or len(held) == 1:
        name = over_time[0] if len(over_time) == 1 else next(iter(held))
        return held[name], name
    if held:
        raise ValueError(
            f"the data set holds several networks: {listed(held)}; select the variables of one, "
            "such as data[[name for name in data if name.startswith('first.')]]."
        )
    raise ValueError(
        f"the data set holds no weights of this graph (variables {listed(names)}): return a "
        "network or a run with its models from the function that is swept (of a quotient its "
        "run.pathways()), and select one value of axes that change the graph."
    )


def _fit(data: DataSet, names: list[str], shapes: list[tuple[int, ...]]) -> bool:
    held = data.data_vars
    return all(
        name in held and np.shape(held[name])[-len(shape) :] == shape
        for name, shape in zip(names, shapes, strict=True)
    )


def _by_edge(data: DataSet, graph: Graph, keys: Mapping[str, str]) -> GatedNetwork:
    arrays = {edge: jnp.asarray(np.asarray(data.data_vars[key])) for edge, key in keys.items()}

    def array(parameter: str) -> Array:
        edge, transposed = graph.uses[parameter][0]
        return jnp.swapaxes(arrays[edge], -1, -2) if transposed else arrays[edge]

    groups = [[array(name) for name in store.names] for store in graph.stores]
    return GatedNetwork.from_stacks(graph, tuple(jnp.stack(group, axis=-3) for group in groups))
