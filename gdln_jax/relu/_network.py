"""Networks with rectified hidden layers and a linear read-out."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import Graph
from gdln_jax import init as initialisers
from gdln_jax._checks import is_concrete
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.arrays import weight_array
from gdln_jax._data.boundary import check_gated_data, check_single, for_prediction
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._data.state import Orientation, check_orientation, read_arrays, write_arrays
from gdln_jax._network.edges import check_untied
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.model import AbstractModel, Pairs
from gdln_jax.relu._masks import Mask, checked_masks
from gdln_jax.relu._reading import find_layout

# Input node that is always 1 and feeds the biases, in gated networks made from ReLU networks.
ONE = "1"


class ReLUKind(NamedTuple):
    """What a gated network needs to know of the ReLU networks whose gates it has."""

    depth: int = 1
    bias: bool = False
    slope: float = 0.0
    masked: bool = False


class ReLUNetwork(AbstractModel):
    r"""A fully connected network $h_l = \sigma(W_l h_{l-1} + c_l)$ with a linear last layer.

    sigma(z) = z for z > 0 and slope z otherwise; at exactly 0 a unit is off (derivative `slope`).

    Args:
        weights: one array (|h_l|, |h_{l-1}|) per layer, the read-out last.
        biases: None, or one array (|h_l|,) per layer, the read-out's included.
        slope: of the negative side, 0 for ReLU, above 0 for leaky ReLU. Static: never trained.
        masks: None, or one 0/1 matrix (|h_l|, |h_{l-1}|) per layer, or None for a full layer. Where
            it is 0 there is no weight: two encoders that meet in a later layer, say. Static; the
            entries are 0 and have no gradient. `block_mask` makes one.

    `from_state_dict` reads what PyTorch, Flax, Equinox or NumPy saved, `save` writes it.

    Calling it on `GatedData` with one input and one output node and without gates returns output
    node -> predictions (n, |y|), so that `mse`, `cross_entropy`, `gradient_flow` and `train`
    work as for a `GatedNetwork`; calling it on an array (..., |x|) returns (..., |y|).

    Raises:
        ValueError: weights that do not fit each other or the data; data with several inputs or
            outputs or with gates (a ReLU network makes its own); weights that are not finite,
            complex or of a precision below float32 (whole numbers become floats); a slope outside
            of [0, 1).
    """

    weights: tuple[Float[Array, "... _ _"], ...]
    biases: tuple[Float[Array, "... _"], ...] | None
    slope: float = eqx.field(static=True)
    masks: tuple[Mask | None, ...] | None = eqx.field(static=True)
    # For the default tolerances of gradient_flow.
    kinks: ClassVar[bool] = True
    _instead = AbstractModel._instead._replace(
        graph="linear theory does not hold for a network that makes its own gates. Find gates "
        "that imitate it (gdln.discover_gates, gdln.build_gated) and pass the graph and the data "
        "of those",
        network="find gates that imitate a ReLU network (gdln.discover_gates, gdln.build_gated) "
        "and pass the network of those",
    )

    def __init__(
        self,
        weights: Sequence[object],
        biases: Sequence[object] | None = None,
        slope: float | int = 0.0,
        masks: Sequence[object] | None = None,
    ):
        self.weights = _matrices(weights, "weights")
        self.biases = None if biases is None else _matrices(biases, "biases")
        self.slope = float(slope)
        if len(self.weights) < 2 or any(w.ndim < 2 for w in self.weights):
            raise ValueError(
                f"weights has shapes {[w.shape for w in self.weights]}; give at least two "
                "matrices (|target|, |source|): a hidden layer and the read-out."
            )
        for i in range(1, len(self.weights)):
            here, before = self.weights[i].shape, self.weights[i - 1].shape
            if here[-1] != before[-2]:
                raise ValueError(
                    f"weights[{i}] has shape {here}, but layer {i} has {before[-2]} units "
                    f"(weights[{i - 1}] has shape {before})."
                )
        wanted = [w.shape[:-1] for w in self.weights]
        if self.biases is not None and [b.shape for b in self.biases] != wanted:
            raise ValueError(
                f"biases have shapes {[b.shape for b in self.biases]}; expected {wanted}."
            )
        if not 0 <= self.slope < 1:
            raise ValueError(f"slope is {slope!r}; it must lie in [0, 1), 0 for plain ReLU.")
        self.masks = checked_masks(masks, [w.shape[-2:] for w in self.weights])
        self.weights = self._masked()

    @classmethod
    def from_state_dict(
        cls,
        source: object,
        *,
        layers: Sequence[str] | None = None,
        orientation: Orientation | None = None,
        slope: float | int = 0.0,
        masks: Sequence[object] | None = None,
    ) -> "ReLUNetwork":
        """Read a network that another program trained; nothing in a file is executed.

        Args:
            source: a mapping name -> array (of NumPy, JAX, torch; nested as Flax has it), a PyTorch
                or Equinox module, or the path of a `.npz`, `.safetensors` or PyTorch file (read
                with `weights_only=True`). Layers are called `fc1.weight`, `0.weight`,
                `layers.0.weight`, `params/Dense_0/kernel`, `W1`, biases accordingly; `module.` and
                `_orig_mod.` before them are passed over.
            layers: names of the layers to read, first to last. Default: all, in the order of their
                numbers, or the only one in which they fit.
            orientation: `"out_in"` for arrays (|target|, |source|) as in PyTorch and Equinox,
                `"in_out"` for those of Flax and Keras. Default: as the names say and the shapes
                allow; needed where all are square.
            slope: of the leaky ReLU, which no checkpoint holds.
            masks: of the layers, as above.

        Raises:
            ValueError: convolutional or normalisation layers and others that are not fully
                connected, by name and with what can be done; missing layers, shapes that do not fit
                or leave the layout open, values that are not finite, files that cannot be read.
        """
        read = read_arrays(source)
        layout = find_layout(read, layers=layers, orientation=orientation)
        arrays = read.arrays
        return cls(layout.weights(arrays), layout.biases(arrays), slope, masks)

    def to_state_dict(
        self, names: Sequence[str] | None = None, *, orientation: Orientation = "out_in"
    ) -> dict[str, np.ndarray]:
        """Return name -> array, as PyTorch (`name.weight`) or Flax (`name/kernel`) has them.

        Args:
            names: of the layers. Default: 0, 2, 4, ..., those of a PyTorch `Sequential` with a ReLU
                between its layers.
            orientation: `"out_in"`, or `"in_out"` for kernels of Flax.
        """
        check_orientation(orientation)
        names = [str(2 * i) for i in range(len(self.weights))] if names is None else list(names)
        if len(names) != len(self.weights):
            raise ValueError(f"names has {len(names)} entries for {len(self.weights)} layers.")
        weight, bias = (".weight", ".bias") if orientation == "out_in" else ("/kernel", "/bias")
        arrays = {}
        for i, name in enumerate(names):
            w = np.asarray(self.weights[i])
            arrays[name + weight] = w if orientation == "out_in" else w.swapaxes(-1, -2)
            if self.biases is not None:
                arrays[name + bias] = np.asarray(self.biases[i])
        return arrays

    def save(
        self,
        path: str | Path,
        names: Sequence[str] | None = None,
        *,
        orientation: Orientation = "out_in",
    ) -> Path:
        """Write `to_state_dict(names, orientation=...)` to a `.npz` or `.safetensors` file."""
        return write_arrays(path, self.to_state_dict(names, orientation=orientation))

    @classmethod
    def init(
        cls,
        widths: Sequence[int] | Graph,
        *,
        std: ArrayLike | Sequence[Any] = 1.0,
        init: initialisers.Initialiser | None = None,
        bias: bool = False,
        slope: float | int = 0.0,
        masks: Sequence[object] | None = None,
        key: PRNGKeyArray,
    ) -> "ReLUNetwork":
        """Draw independent weights N(0, std^2); biases, if any, start at 0.

        Args:
            widths: `[|x|, |h1|, ..., |y|]`, or the graph of a chain such as the `.graph` of an
                ungated task.
            std: one for all layers or one per layer; may be traced. For inputs +-1 and small
                weights a first layer of N_h units starts N's XoR at the effective amplitude (N_h/4)
                0.6617 std^2 (E14).
            init: an initialiser of `gdln.init` instead of `std`.

        With the same key the weights are those of
        `GatedNetwork.init(Graph.chain(widths), init.normal(std), key=key)`.
        """
        graph = widths if isinstance(widths, Graph) else Graph.chain(widths)
        names = _chain_edges(graph)
        stds = _checked_stds(1.0 if init is not None else std, len(names))
        drawn = GatedNetwork.init(graph, init or initialisers.normal(1.0), key=key).weights
        weights = [jnp.asarray(s) * drawn[name] for s, name in zip(stds, names, strict=True)]
        biases = [jnp.zeros(w.shape[0], w.dtype) for w in weights] if bias else None
        return cls(weights, biases, slope, masks)

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.weights) - 1

    @property
    def kind(self) -> ReLUKind:
        """Number of hidden layers, whether there are biases and masks, and the slope."""
        return ReLUKind(self.depth, self.biases is not None, self.slope, self.masks is not None)

    def pre_activations(self, x: Float[Array, "*n inputs"]) -> list[Float[Array, "..."]]:
        """Return what enters each layer's nonlinearity, (..., |h_l|), and the output last."""
        check_single(self, self.weights[0].shape[:-2])
        layers, h = [], jnp.asarray(x)
        for i, w in enumerate(self._masked()):
            # HIGHEST: GPUs would otherwise multiply float32 in reduced precision.
            z = jnp.einsum("...s,ts->...t", h, w, precision=jax.lax.Precision.HIGHEST)
            if self.biases is not None:
                z = z + jnp.expand_dims(self.biases[i], tuple(range(z.ndim - 1)))
            layers.append(z)
            h = jnp.where(z > 0, z, self.slope * z)
        return layers

    def _masked(self) -> tuple[Array, ...]:
        """Weights that are 0, with derivative 0, where there are none."""
        if self.masks is None:
            return self.weights
        return tuple(
            w if mask is None else jnp.where(mask.array, w, 0)
            for w, mask in zip(self.weights, self.masks, strict=True)
        )

    def __call__(self, data: object) -> Any:
        """Return `{output node: (n, |y|)}` for `GatedData`, (..., |y|) for an array.

        A mapping input node -> array stands for `GatedData(inputs)`. Without targets the output
        node is called `"y"`, as in `Graph.chain`.
        """
        if isinstance(data, Mapping):
            data = for_prediction(data)
        if not isinstance(data, GatedData | PackedData):
            return self.pre_activations(_checked_array(data, self.weights[0].shape[-1]))[-1]
        x, target = self.ends(data)
        return {target: self.pre_activations(x)[-1]}

    def ends(self, data: object) -> tuple[Float[Array, "n inputs"], str]:
        """Return the input array of `data` and the name of its output node, after checks."""
        if not isinstance(data, GatedData):
            raise ValueError(
                f"a ReLU network needs GatedData without gates or an array, got "
                f"{type(data).__name__}; packed data are arranged for a GatedNetwork."
            )
        if len(data.inputs) != 1 or len(data.targets) > 1:
            raise ValueError(
                f"a ReLU network has one input and one output; these data have inputs "
                f"{list(data.inputs)} and targets {list(data.targets)}. Use the ungated version "
                "of the task."
            )
        if data.node_gates or data.edge_gates:
            gated = [*data.node_gates, *data.edge_gates]
            raise ValueError(
                f"these data gate {gated}, but a ReLU network makes its own gates: use the "
                "ungated version of the task, GatedData(data.inputs, data.targets)."
            )
        ((name, x),) = data.inputs.items()
        x = _checked_array(x, self.weights[0].shape[-1], f"inputs[{name!r}]")
        if not data.targets:
            return x, "y"
        ((target, y),) = data.targets.items()
        if y.shape[-1] != self.weights[-1].shape[-2]:
            raise ValueError(
                f"targets[{target!r}] has shape {y.shape}, but the network has "
                f"{self.weights[-1].shape[-2]} outputs."
            )
        return x, target

    def validate(self, data: GatedData | Schedule) -> None:
        """Check data as `ends` does."""
        self.ends(data.phase(0) if isinstance(data, Schedule) else data)

    def prepare(self, data: GatedData | PackedData) -> GatedData | PackedData:
        """Check data as `ends` does; they are evaluated as they are."""
        self.ends(data)
        return check_gated_data(data)

    def pairs(self, data: GatedData | PackedData) -> Pairs:
        """Return (prediction, target, weight) of the output node."""
        x, target = self.ends(data)
        data = check_gated_data(data)
        return [(self.pre_activations(x)[-1], data.targets[target], data.weights)]

    def __repr__(self) -> str:
        shapes = " -> ".join(
            [str(self.weights[0].shape[-1]), *(str(w.shape[-2]) for w in self.weights)]
        )
        parts = [shapes]
        if self.biases is not None:
            parts.append("biases")
        if self.slope:
            parts.append(f"slope {self.slope:g}")
        if self.masks is not None:
            parts.append("masks")
        if self.weights[0].ndim > 2:
            parts.append(f"batch {self.weights[0].shape[:-2]}")
        return f"ReLUNetwork({', '.join(parts)})"


def check_relu(model: object) -> None:
    """Raise `ValueError` unless `model` is one `ReLUNetwork`, not a batch of them."""
    if not isinstance(model, ReLUNetwork):
        raise ValueError(
            f"model is a {type(model).__name__}; pass a gdln.ReLUNetwork, the data second. "
            "Networks whose gates are in the data have no patterns of their own."
        )
    check_single(model, model.weights[0].shape[:-2])


def check_plain(model: object) -> None:
    """Raise `ValueError` unless `model` is what gates are predicted for, batched or not."""
    if not isinstance(model, ReLUNetwork):
        raise ValueError(f"the run is of a {type(model).__name__}; expected a gdln.ReLUNetwork.")
    why = None
    if model.depth != 1:
        why = f"{model.depth} hidden layers, whose drops are not at logarithmic times"
    elif model.biases is not None:
        why = "biases, which the prediction leaves out"
    elif model.slope:
        why = f"slope {model.slope:g}, where the prediction takes units to be off below 0"
    elif model.masks is not None:
        why = "masks, where the prediction takes units to see the whole input"
    if why:
        raise ValueError(
            f"these networks have {why}; gates are predicted for one hidden layer without biases "
            "and without a leaky slope, ReLUNetwork.init(widths, std=..., key=...)."
        )


def _matrices(arrays: object, name: str) -> tuple[Array, ...]:
    if isinstance(arrays, Mapping) or not isinstance(arrays, Iterable):
        remedy = "those of a chain by edge name, in order, list(weights.values())"
        raise ValueError(
            f"{name} is a {type(arrays).__name__}; pass a sequence of arrays, one per layer, the "
            f"read-out last ({remedy})."
        )
    return tuple(weight_array(array, f"{name}[{i}]") for i, array in enumerate(arrays))


def _chain_edges(graph: Graph) -> list[str]:
    check_untied(graph, "a ReLU network", "give the widths; its layers are then independent")
    order = graph.order
    chain = [(e.source, e.target) for e in graph.edges]
    if sorted(chain) != sorted(itertools.pairwise(order)):
        raise ValueError(
            f"{graph!r} is not a chain; a ReLU network is fully connected from one input to one "
            "output. Pass the widths, or the graph of an ungated task."
        )
    if len(order) < 3:
        raise ValueError(f"{graph!r} has no hidden layer; give at least three widths.")
    return [graph.outgoing[name][0].name for name in order[:-1]]


def _checked_stds(std: Any, layers: int) -> list[Any]:
    stds = list(std) if isinstance(std, list | tuple) else [std] * layers
    if len(stds) != layers:
        raise ValueError(f"std has {len(stds)} entries for {layers} layers.")
    for value in stds:
        if is_concrete(value) and not (np.isfinite(value) and np.asarray(value) >= 0):
            raise ValueError(f"std is {value!r}; it must be finite and not negative.")
    return stds


def _checked_array(x: object, width: int, name: str = "the input") -> Array:
    array = jnp.asarray(x)
    if array.ndim < 1 or array.shape[-1] != width:
        raise ValueError(f"{name} has shape {array.shape}; expected (..., {width}).")
    return array
