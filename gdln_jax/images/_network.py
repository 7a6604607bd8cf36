"""The routed network of N App. D: M encoders, a shared pathway, M decoders, stacked.

Linear, it is the `GatedNetwork` of `tasks.transformed_images`, weight by weight. It may have a
leaky ReLU instead (N Fig. 9), and it encodes an input once for all its outputs.
"""

import math
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import TypeAliasType

from gdln_jax import Graph
from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._linalg import standard_normal
from gdln_jax._network.edges import check_untied
from gdln_jax._network.gated import GatedNetwork
from gdln_jax._network.model import AbstractModel, Pairs

# One array per layer.
Cubes = TypeAliasType("Cubes", tuple[Float[Array, "*run _ _ _"], ...])
Matrices = TypeAliasType("Matrices", tuple[Float[Array, "*run _ _"], ...])
Vectors = TypeAliasType("Vectors", tuple[Float[Array, "*run _"], ...])


class RoutedNetwork(AbstractModel):
    """Route (i, j) computes psi_j(theta(phi_i(x))): encoder i, shared layers, decoder j.

    - `encoders`, `decoders`: layers of stacks (M, |target|, |source|); `hidden`: shared layers
      (|target|, |source|).
    - `encoder_biases`, `hidden_biases`, `decoder_biases`: the same without |source|; empty for a
      network without biases.
    - `slope`: of the leaky ReLU after every layer but the last; 1 is linear.

    Leading axes (runs) may stand before all arrays. `images.train_images` trains it, and
    `images.route_accuracy` evaluates it. A linear one also stands for its `GatedNetwork` in `mse`,
    `gradient_flow` and `train`, on the packed data of `tasks.transformed_images`.
    """

    encoders: Cubes
    hidden: Matrices
    decoders: Cubes
    encoder_biases: Matrices
    hidden_biases: Vectors
    decoder_biases: Matrices
    slope: float = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        num_domains: int,
        inputs: int,
        classes: int,
        *,
        width: int = 128,
        gain: ArrayLike = 1.0,
        layers: tuple[int, int, int] = (1, 1, 1),
        bias: bool = True,
        slope: float = 1.0,
        key: PRNGKeyArray,
        dtype: str = "float32",
    ) -> "RoutedNetwork":
        """Draw Xavier-normal weights times `gain` (N's gain ratio); biases are 0.

        `layers` counts the layers of an encoder, of the shared pathway, and of a decoder; all
        widths between are `width`. `gain` may be a traced array.
        """
        m = check_integer(num_domains, "num_domains", minimum=1)
        width = check_integer(width, "width", minimum=1)
        if len(layers) != 3 or layers[0] < 1 or layers[1] < 0 or layers[2] < 1:
            raise ValueError(
                f"layers is {layers!r}; expected (encoder >= 1, shared >= 0, decoder >= 1)."
            )
        shapes = [
            [(m, width, inputs if n == 0 else width) for n in range(layers[0])],
            [(width, width)] * layers[1],
            [(m, classes if n == layers[2] - 1 else width, width) for n in range(layers[2])],
        ]
        keys = iter(jax.random.split(key, sum(layers)))

        def draw(shape: tuple[int, ...]) -> Array:
            scale = jnp.asarray(gain, dtype) * math.sqrt(2 / (shape[-1] + shape[-2]))
            return scale * standard_normal(next(keys), shape, dtype)

        weights = [tuple(draw(shape) for shape in group) for group in shapes]
        zeros = [
            tuple(jnp.zeros(shape[:-1], dtype) for shape in group) if bias else ()
            for group in shapes
        ]
        return cls(weights[0], weights[1], weights[2], zeros[0], zeros[1], zeros[2], float(slope))

    @property
    def num_domains(self) -> int:
        """M."""
        return self.encoders[0].shape[-3]

    def encode(self, x: Float[Array, "domain n width"]) -> Float[Array, "domain n hidden"]:
        """Return the activity of the last shared layer for the inputs of each domain."""
        return self.after_first(first_layer(self, x))

    def after_first(self, a: Float[Array, "domain n width"]) -> Float[Array, "domain n hidden"]:
        """Apply the layers of `encode` after the first layer's sums."""
        h = self._bend(a)
        for n, w in enumerate(self.encoders[1:], start=1):
            h = _each("mhd,mbd->mbh", w, h)
            if self.encoder_biases:
                h = h + self.encoder_biases[n][:, None, :]
            h = self._bend(h)
        for n, w in enumerate(self.hidden):
            h = _each("hd,mbd->mbh", w, h)
            if self.hidden_biases:
                h = h + self.hidden_biases[n]
            h = self._bend(h)
        return h

    def decode(self, h: Float[Array, "domain n hidden"]) -> Float[Array, "domain n class"]:
        """Return the outputs of decoder j for row block j."""
        last = len(self.decoders) - 1
        for n, w in enumerate(self.decoders):
            h = _each("mkh,mbh->mbk", w, h)
            if self.decoder_biases:
                h = h + self.decoder_biases[n][:, None, :]
            h = h if n == last else self._bend(h)
        return h

    def decode_all(
        self, h: Float[Array, "domain n hidden"]
    ) -> Float[Array, "domain n domain class"]:
        """Return the outputs of all M^2 routes: [i, n, j] is decoder j on row n of domain i."""
        weights, biases = list(self.decoders), list(self.decoder_biases)
        last = len(weights) - 1
        pre = _each("jkh,ibh->ibjk", weights[0], h)
        for n in range(len(weights)):
            pre = pre if n == 0 else _each("jkh,ibjh->ibjk", weights[n], pre)
            if biases:
                pre = pre + biases[n]
            pre = pre if n == last else self._bend(pre)
        return pre

    def __call__(self, data: GatedData | PackedData) -> dict[str, Float[Array, "n width"]]:
        """Return output node -> predictions (n, |v|) of a linear network."""
        return self._as_gated(data)(data)

    def validate(self, data: GatedData | PackedData | Schedule) -> None:
        """Raise `ValueError` unless this is a linear network and the data are packed for it."""
        self._as_gated(data)

    def prepare(self, data: GatedData | PackedData) -> GatedData | PackedData:
        """Check data as `validate` does."""
        self.validate(data)
        return data

    def pairs(self, data: GatedData | PackedData) -> Pairs:
        """Return (prediction, target, weight) arrays of a linear network."""
        return self._as_gated(data).pairs(data)

    def _as_gated(self, data: GatedData | PackedData | Schedule) -> GatedNetwork:
        if self.slope != 1 or not isinstance(data, PackedData):
            kind = "with a leaky ReLU" if self.slope != 1 else f"given {type(data).__name__}"
            raise ValueError(
                f"a RoutedNetwork {kind} has no loss here: train it by images.train_images and "
                "evaluate it by images.route_accuracy. A linear one takes the packed data of "
                "tasks.transformed_images."
            )
        return to_gated(self, data.graph)

    def _bend(self, h: Array) -> Array:
        return h if self.slope == 1 else jnp.where(h > 0, h, self.slope * h)

    def __repr__(self) -> str:
        first, last = self.encoders[0].shape, self.decoders[-1].shape
        kind = "linear" if self.slope == 1 else f"leaky ReLU {self.slope:g}"
        count = tuple(len(w) for w in (self.encoders, self.hidden, self.decoders))
        bias = "with" if self.encoder_biases else "without"
        return (
            f"RoutedNetwork({self.num_domains} domains, {first[-1]}-{first[-2]}-...-{last[-2]}, "
            f"layers {count}, {kind}, {bias} biases)"
        )


def first_layer(
    net: RoutedNetwork, x: Float[Array, "*domain n width"]
) -> Float[Array, "domain n hidden"]:
    """Sums of the first encoder layer; rows (n, width) are seen alike by all domains."""
    w = net.encoders[0]
    if x.ndim == 2:
        flat = _each("rd,bd->rb", w.reshape(-1, w.shape[-1]), x)
        a = flat.reshape(*w.shape[:2], -1)
    else:
        # XLA would fold the transposition below into the product, and multiply batches of such by a
        # plain loop on CPUs: 6 times slower.
        a = jax.lax.optimization_barrier(_each("mhd,mbd->mhb", w, x))
    a = jnp.swapaxes(a, 1, 2)
    return a + net.encoder_biases[0][:, None, :] if net.encoder_biases else a


def _each(rule: str, *arrays: Array) -> Array:
    # HIGHEST: GPUs would otherwise multiply float32 in reduced precision.
    return jnp.einsum(rule, *arrays, precision=jax.lax.Precision.HIGHEST)


def edge_names(
    num_domains: int, layers: tuple[int, int, int], *, bias: bool
) -> tuple[list[list[str]], list[list[str]]]:
    """Names of the edges of `tasks.transformed_images`: per layer, weights and biases.

    In the order encoders, shared, decoders; a shared layer has one name, others M.
    """
    weights, biases = [], []
    for layer in node_names(num_domains, layers):
        weights.append([f"{source}->{target}" for source, target in layer])
        biases.append([f"bias:{source}->{target}" for source, target in layer] if bias else [])
    return weights, biases


def node_names(num_domains: int, layers: tuple[int, int, int]) -> list[list[tuple[str, str]]]:
    """(source, target) nodes per layer: `x3`, `x3.1`, `h1`, `h2`, `y5.1`, `y5` and the like."""
    inner, shared, outer = layers
    steps = [
        [
            (f"x{i}.{n}" if n else f"x{i}", "h1" if n == inner - 1 else f"x{i}.{n + 1}")
            for i in range(num_domains)
        ]
        for n in range(inner)
    ]
    steps += [[(f"h{n + 1}", f"h{n + 2}")] for n in range(shared)]
    top = f"h{shared + 1}"
    for n in range(outer):
        steps.append(
            [
                (top if n == 0 else f"y{j}.{n}", f"y{j}" if n == outer - 1 else f"y{j}.{n + 1}")
                for j in range(num_domains)
            ]
        )
    return steps


def to_gated(net: RoutedNetwork, graph: Graph) -> GatedNetwork:
    """Return the same weights as a `GatedNetwork` on the graph of `tasks.transformed_images`."""
    check_untied(graph, "a RoutedNetwork", "pass the graph of tasks.transformed_images")
    weights: dict[str, Array] = {}
    groups = (net.encoders, net.hidden, net.decoders)
    counts = (len(net.encoders), len(net.hidden), len(net.decoders))
    bias = bool(net.encoder_biases)
    names, bias_names = edge_names(net.num_domains, counts, bias=bias)
    layers = [w for group in groups for w in group]
    rows = [*net.encoder_biases, *net.hidden_biases, *net.decoder_biases]
    for n, w in enumerate(layers):
        stack = w if w.ndim == 3 else w[None]
        weights |= dict(zip(names[n], stack, strict=True))
        if bias:
            stack = rows[n] if w.ndim == 3 else rows[n][None]
            weights |= dict(zip(bias_names[n], stack[..., None], strict=True))
    return GatedNetwork(graph, weights)


def from_gated(
    weights: Mapping[str, Array],
    num_domains: int,
    layers: tuple[int, int, int] = (1, 1, 1),
    *,
    bias: bool,
) -> RoutedNetwork:
    """Invert `to_gated`, from `GatedNetwork.weights` (or a gradient's)."""
    names, bias_names = edge_names(num_domains, layers, bias=bias)
    stacks = [jnp.stack([weights[name] for name in layer]) for layer in names]
    rows = [jnp.stack([weights[name][:, 0] for name in layer]) for layer in bias_names if layer]
    inner, shared, _ = layers

    def grouped(
        items: list[Array],
    ) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]]:
        if not items:
            return (), (), ()
        middle = tuple(item[0] for item in items[inner : inner + shared])
        return tuple(items[:inner]), middle, tuple(items[inner + shared :])

    return RoutedNetwork(*grouped(stacks), *grouped(rows), 1.0)
