"""The gated network of gates that were found, started as a ReLU network starts (H App. B)."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from gdln_jax import Graph, expected_initial, init
from gdln_jax._checks import check_choice, check_integer, check_positive
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.gated import GatedData
from gdln_jax._network.gated import GatedNetwork
from gdln_jax.relu._gates import GateModules
from gdln_jax.relu._network import ONE, ReLUKind


def build_gated(
    modules: GateModules,
    data: GatedData,
    *,
    std: float | int,
    key: Key[Array, "*seed"],
    width: int | None = None,
    scales: str | ArrayLike | Sequence[float | int] = "units",
) -> tuple[Graph, GatedData, GatedNetwork]:
    r"""Make the gated network of these modules: graph, gated data and initial network.

    Module m becomes a hidden node `m1`, `m2`, ... between the input and the output node of
    `data`, gated by `modules.gates[m]`, in the order of `modules`; a module that is on for no
    example would send nothing and is left out (not of leaky networks, whose units send `slope`
    times their input where they are off: so do their gates). All pathways see the whole input, as
    units do. Biases of the ReLU network become the weights of an input node `1` that is always 1;
    they start at 0, as those of `ReLUNetwork.init` do.

    Args:
        modules: from `discover_gates` or `GateChoice.chosen`.
        data: what the ReLU network was trained on, one input and one output, no gates, examples in
            the order of the gates.
        std: standard deviation of the ReLU network's initial weights in both layers.
        key: one key, or an array of keys for a network with a leading axis of seeds.
        width: units of each pathway. Default: the ReLU network's own number n_m, which is the mean
            over snapshots of the units in module m (at least 1).
        scales: how pathways start; nothing is fitted. `"units"`: as n_m linear units with iid N(0,
            std^2) weights, whatever `width`: a_m(0) = n_m std^2/2, which the ReLU network's units
            of that module would have if their gates stood from the start. `"turning"`: as rectified
            units that turn before they grow, a_m(0) = n_m kappa std^2 with E14's kappa = 0.661699,
            which is exact for XoR and shifts curves by ln(2 kappa)/(2 s) in time. `"equal"`: at
            `std` everywhere. Or a factor of `std` for each module (or for all), say from a fit of
            your own: call it a fit where you report it.

    Raises:
        ValueError: for gates that do not fit the data, modules that are all off, scales that are
            not positive, one per module, or ReLU networks with several hidden layers, of which a
            pathway has one.
    """
    std = check_positive(std, "std")
    check_one_layer(modules.kind)
    ends(data)
    gates = modules.gates
    if gates.shape[1] != data.num_examples:
        raise ValueError(
            f"the gates are for {gates.shape[1]} examples, the data have {data.num_examples}."
        )
    values = gate_values(modules)
    kept = np.flatnonzero(values.any(axis=1))
    if not len(kept):
        raise ValueError("every module is off on all examples, so that no pathway is left.")
    units = mean_units(modules)
    sizes = np.maximum(np.rint(units), 1).astype(int)
    if width is not None:
        sizes = np.full(len(gates), check_integer(width, "width", minimum=1))
    factors = _factors(scales, units, sizes)
    names = [f"m{m + 1}" for m in kept]
    graph = gated_graph(data, names, sizes[kept].tolist(), modules.kind.bias)
    gated = with_pathways(
        data,
        {name: values[m].astype(data.weights.dtype) for name, m in zip(names, kept, strict=True)},
        modules.kind.bias,
    )
    scale = {name: factors[m] for name, m in zip(names, kept, strict=True)}

    def start(key: PRNGKeyArray) -> GatedNetwork:
        return start_at(graph, ends(data), scale, std, key)

    return graph, gated, start(key) if key.ndim == 0 else jax.vmap(start)(key)


def mean_units(modules: GateModules) -> Float[np.ndarray, " module"]:
    """Units of each module, averaged over snapshots."""
    return modules.members.reshape(-1, modules.k).mean(axis=0)


def ends(data: GatedData) -> tuple[str, str]:
    """Names of the only input and output node, after checks."""
    if not isinstance(data, GatedData) or len(data.inputs) != 1 or len(data.targets) != 1:
        raise ValueError("data must be GatedData with one input and one output node.")
    if data.node_gates or data.edge_gates:
        raise ValueError(
            "data have gates already; pass what the ReLU network was trained on, "
            "GatedData(data.inputs, data.targets)."
        )
    (source,), (output,) = data.inputs, data.targets
    return source, output


def check_one_layer(kind: ReLUKind) -> None:
    """Refuse gates of networks whose other hidden layers the pathways would leave out."""
    if kind.depth != 1:
        raise ValueError(
            f"these gates are of ReLU networks with {kind.depth} hidden layers, and a pathway made "
            "from them has one, so that the other layers would be left out. relu.as_gated(model, "
            "data) makes the gated network of all layers at given weights."
        )
    if kind.masked:
        raise ValueError(
            "these gates are of ReLU networks with masks, and pathways made from them see the "
            "whole input. relu.as_gated(model, data) makes the gated network of given weights."
        )


def gate_values(modules: GateModules) -> Float[np.ndarray, "module example"]:
    """1 where a module is on, else the slope of the ReLU networks: 0, or more if they are leaky."""
    return np.where(modules.gates == 1, 1.0, modules.kind.slope)


def gated_graph(data: GatedData, names: Sequence[str], sizes: Sequence[int], bias: bool) -> Graph:
    """Parallel pathways from the input to the output node, and one that feeds the biases."""
    source, output = ends(data)
    ones = [ONE] if bias else []
    taken = {source, output} & {*names, *ones}
    if taken:
        raise ValueError(
            f"a node of the data is called {taken.pop()!r} like a module or the input of the "
            "biases; rename it."
        )
    nodes = {
        source: data.inputs[source].shape[1],
        **dict.fromkeys(ones, 1),
        **dict(zip(names, sizes, strict=True)),
        output: data.targets[output].shape[1],
    }
    edges = [*((source, name) for name in names), *((name, output) for name in names)]
    return Graph(nodes, [*edges, *((one, name) for one in ones for name in (*names, output))])


def with_pathways(data: GatedData, gates: Mapping[str, ArrayLike], bias: bool) -> GatedData:
    """The data with the gates of pathways, and the input of the biases."""
    ones = {ONE: jnp.ones((data.num_examples, 1), data.weights.dtype)} if bias else {}
    gated = GatedData({**data.inputs, **ones}, data.targets, gates, weights=data.weights)
    return gated.with_names(data.names)


def start_at(
    graph: Graph,
    ends: tuple[str, str],
    scale: Mapping[str, ArrayLike],
    std: ArrayLike,
    key: PRNGKeyArray,
) -> GatedNetwork:
    """A network whose pathways' weights are iid N(0, (scale std)^2), without biases at first.

    Scales may be traced.
    """
    source, output = ends
    net = GatedNetwork.init(graph, init.normal(std), key=key)
    weights = net.weights
    biases = {edge: jnp.zeros_like(w) for edge, w in weights.items() if edge.startswith(f"{ONE}->")}
    return net.with_weights(
        biases
        | {
            edge: jnp.asarray(factor) * weights[edge]
            for name, factor in scale.items()
            for edge in (f"{source}->{name}", f"{name}->{output}")
        }
    )


def _factors(
    scales: str | ArrayLike | Sequence[float | int], units: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    if isinstance(scales, str):
        check_choice(scales, ("units", "turning", "equal"), "scales")
        if scales == "equal":
            return np.ones(len(sizes))
        kappa = expected_initial(4, 1.0, layer="relu")[0]
        grown = 2 * kappa if scales == "turning" else 1.0
        return np.sqrt(grown * np.maximum(units, 1) / sizes)
    factors = np.asarray(scales, float)
    if factors.shape not in ((), units.shape) or not np.all((factors > 0) & np.isfinite(factors)):
        raise ValueError(
            f"scales is {scales!r}; give 'units', 'turning', 'equal', or positive factors, "
            f"one per module ({len(units)})."
        )
    return np.broadcast_to(factors, units.shape)
