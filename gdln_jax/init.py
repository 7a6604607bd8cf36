"""Initial weights. Each docstring says which initial amplitude b(0) it gives.

An initialiser is a function `(graph, key) -> weights`. Random ones give each parameter (each edge,
or class of tied edges) a key derived from its name, so that no two share weights and adding an edge
leaves the others as they were.
"""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import erfinv

from gdln_jax._checks import Suggesting, check_keys, is_concrete, namespace
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.arrays import real_array
from gdln_jax._data.boundary import check_random_key
from gdln_jax._graph import Graph
from gdln_jax._linalg import balanced_pair, orthonormal, standard_normal
from gdln_jax._progress import is_traced

Initialiser = Callable[[Graph, PRNGKeyArray], Any]
_Stack = tuple[tuple[str, ...], tuple[int, int]]
# Above this many entries stacks are drawn one after the other, each at its own size.
_TOGETHER = 2**20


@runtime_checkable
class _Embeds(Protocol):
    """What `decoupled` needs of a reduction."""

    @property
    def graph(self) -> Graph: ...
    def embed(self, b: Any) -> Any: ...


@dataclasses.dataclass(frozen=True, eq=False)
class RandomInitialiser(Suggesting):
    """Independent random weights for every edge; what `orthogonal`, `normal`, `xavier` return.

    Attributes:
        kind: "orthogonal", "normal" or "xavier".
        scale: the gain or standard deviation; for "normal" also a mapping edge -> number.
    """

    kind: str
    scale: Any

    def __call__(self, graph: Graph, key: PRNGKeyArray) -> tuple[Array, ...]:
        """Return one stack of weights per store of the graph (without ties, per bundle)."""
        check_random_key(key)
        scales = [self._scales(graph, store.names) for store in graph.stores]
        stacks = [(store.names, store.shape) for store in graph.stores]
        return tuple(_scaled(scales, _draws(key, stacks, self.kind == "orthogonal")))

    def _scales(self, graph: Graph, names: tuple[str, ...]) -> Array | np.ndarray:
        if not isinstance(self.scale, Mapping):
            return self.scale_of(graph, names[0])
        scales = [self.scale_of(graph, name) for name in names]
        stack = np.stack if all(isinstance(s, np.ndarray) for s in scales) else jnp.stack
        return stack(scales)[:, None, None]

    def scale_of(self, graph: Graph, name: str) -> Array | np.ndarray:
        """Return the factor of one parameter's array: its standard deviation, or the gain."""
        scale = self.scale
        if isinstance(scale, Mapping):
            kind = "a parameter of the graph" if graph.tied else "an edge of the graph"
            check_keys(scale, graph.parameters, "std", kind)
            if name not in scale:
                raise ValueError(f"std lacks edge {name!r}; a mapping needs one number per edge.")
            scale = scale[name]
        factor = math.sqrt(2 / sum(graph.parameters[name])) if self.kind == "xavier" else 1.0
        scaled = scale if factor == 1 else scale * factor
        return np.asarray(scaled) if is_concrete(scaled) else scaled


def orthogonal(gain: ArrayLike = 1.0) -> RandomInitialiser:
    """Draw random semi-orthogonal matrices times `gain`: all singular values equal `gain`.

    This is the random initialisation whose scale *is* an initial amplitude, b(0) = `gain` per
    edge up to alignment: the modes start unaligned, and the effective b(0) is what
    `effective_initial` measures. `gain` may be a traced array.
    """
    return RandomInitialiser("orthogonal", _own(gain, "gain"))


def normal(std: ArrayLike | Mapping[str, ArrayLike] = 1.0) -> RandomInitialiser:
    """Draw independent entries N(0, std^2); `std` is one number, or a mapping edge -> number.

    The projection of a random matrix on one pair of directions is N(0, std^2) too, so a mode's
    amplitude per edge starts at order `std`, far below the largest singular value
    `std (sqrt(target) + sqrt(source))`. `std` may be a traced array.
    """
    if isinstance(std, Mapping):
        own = {name: _own(value, f"std[{name!r}]") for name, value in std.items()}
        return RandomInitialiser("normal", own)
    return RandomInitialiser("normal", _own(std, "std"))


def xavier(gain: ArrayLike = 1.0) -> RandomInitialiser:
    """Draw by Glorot's normal initialisation: std = gain sqrt(2 / (|source| + |target|)).

    N Fig. 4 calls sigma_0 the `gain`; it is not b(0) (E9): for N_h = 64 and gain 0.2 the
    effective amplitude is 0.1016 +- 0.0064.
    """
    return RandomInitialiser("xavier", _own(gain, "gain"))


def decoupled(reduction: _Embeds, scale: ArrayLike | Mapping[str, ArrayLike]) -> Initialiser:
    """Align weights with the data: W_e = U_e diag(scale) V_e^T, so that b(0) = `scale` exactly.

    `reduction` comes from `gdln.reduce`; `scale` is one number, one per mode, or a mapping edge
    name -> either. From here the reduced dynamics are exact. The key is not used.

    Raises:
        ValueError: for what is no reduction, and when the weights are drawn for another graph than
            the reduction's.
    """
    if not isinstance(reduction, _Embeds):
        raise ValueError(
            f"reduction is a {type(reduction).__name__}; pass gdln.reduce(graph, data), the scale "
            "second."
        )
    if isinstance(scale, Mapping):
        scale = {name: _own_scale(value) for name, value in scale.items()}
    else:
        scale = _own_scale(scale)

    def initialise(graph: Graph, key: PRNGKeyArray) -> Mapping[str, Array]:
        del key
        if graph != reduction.graph:
            raise ValueError(
                "the reduction was made for another graph; reduce this graph with its data first."
            )
        return reduction.embed(scale).parameters

    return initialise


def balanced(lam: float | int = 0.0, *, scale: ArrayLike = 1.0) -> Initialiser:
    r"""Draw random weights whose conserved matrix (E8) is `lam` I at every hidden node.

    $\sum_{out} W^T W - \sum_{in} W W^T = \lambda I$. The weights are balanced, though not aligned
    with the data.

    - With one hidden layer, $W_2^T W_2 - W_1 W_1^T = \lambda I$ for any `lam` that the widths
      allow: lam > 0 needs |y| >= N_h, lam < 0 needs |x| >= N_h. The singular values of W2 W1 are
      all `scale`^2, so that b(0) = `scale` per edge at lam = 0; at a fixed key the weights are
      continuous in lam. `exact.two_layer_flow` gives their whole course for whitened inputs.
    - Any other graph needs lam = 0. Each node v gets a random frame R_v of r orthonormal columns,
      r the smallest width of the graph, and each edge $W_e = c_e R_{t(e)} R_{s(e)}^T$, whose r
      singular values are all $c_e = $ `scale` $\sqrt{n_e / \min n}$ with n_e the number of paths
      through e. On a chain c_e = `scale`; for routing the shared edge starts $\sqrt M$ above the
      others (N's balanced start, C = 0). Frames are keyed by node name.

    `scale` may be a traced array, `lam` not: its sign decides what is possible.

    Raises:
        ValueError: when the weights are drawn, for a `lam` that the graph or its widths do not
            allow, saying why.
    """
    scale = _own(scale, "scale")

    def initialise(graph: Graph, key: PRNGKeyArray) -> dict[str, Array]:
        check_random_key(key)
        if graph.tied:
            raise ValueError(
                "init.balanced draws frames and factors for every node, which tied or frozen edges "
                "cannot all have: use init.normal, init.orthogonal, or init.decoupled."
            )
        if len(graph.edges) == 2 and len(graph.nodes) == 3 and len(graph.hidden) == 1:
            (hidden,) = graph.hidden
            first, second = graph.incoming[hidden][0].name, graph.outgoing[hidden][0].name
            widths = (graph.shape(first)[1], graph.nodes[hidden], graph.shape(second)[0])
            product = jnp.square(jnp.asarray(scale))
            pair = balanced_pair(key, widths, lam, scale=product)
            return dict(zip((first, second), pair, strict=True))
        if lam != 0:
            raise ValueError(
                f"lam is {lam!r}, but only a chain with one hidden layer can start at lam != 0 "
                "here; use lam = 0 for this graph."
            )
        return _framed(graph, key, scale)

    return initialise


def _own(value: Any, name: str) -> Any:
    """One finite number, a copy, even if the caller changes the array later.

    Becomes a JAX array when weights are drawn, in the precision that holds then.
    """
    array = real_array(value, name)
    if array.ndim:
        raise ValueError(
            f"{name} has shape {array.shape}; pass one number, and map over several with jax.vmap."
        )
    return value if isinstance(value, jax.Array) else np.array(array)


def _own_scale(value: Any) -> Any:
    return np.array(real_array(value, "scale")) if isinstance(value, np.ndarray) else value


def _framed(graph: Graph, key: PRNGKeyArray, scale: ArrayLike) -> dict[str, Array]:
    rank = min(graph.nodes.values())
    stacks = [(names, (graph.nodes[names[0]], rank)) for names in graph.classes.values()]
    draws = _draws(key, stacks, orthogonal=True)
    frames = {
        name: frame
        for (names, _), draw in zip(stacks, draws, strict=True)
        for name, frame in zip(names, draw, strict=True)
    }
    through = _paths_through(graph)
    least = min(through.values())
    maps = [
        math.sqrt(through[edge.name] / least) * (frames[edge.target] @ frames[edge.source].T)
        for edge in graph.edges
    ]
    weights = _scaled([scale] * len(maps), maps)
    return dict(zip([edge.name for edge in graph.edges], weights, strict=True))


def _paths_through(graph: Graph) -> dict[str, int]:
    """Number of paths through each edge: a flow, what enters a hidden node leaves it."""
    before = {name: int(name in graph.inputs) for name in graph.order}
    for name in graph.order:
        before[name] += sum(before[edge.source] for edge in graph.incoming[name])
    after = {name: int(name in graph.outputs) for name in graph.order}
    for name in reversed(graph.order):
        after[name] += sum(after[edge.target] for edge in graph.outgoing[name])
    return {edge.name: before[edge.source] * after[edge.target] for edge in graph.edges}


def _draws(
    key: PRNGKeyArray, stacks: Sequence[_Stack], orthogonal: bool
) -> list[Array] | list[np.ndarray]:
    """One array (name, target, source) per stack, each name's from a key of its own."""
    sizes = [len(names) * math.prod(shape) for names, shape in stacks]
    if sum(sizes) <= _TOGETHER and not is_traced() and _is_counter(key):
        return [_drawn(key, *stack, orthogonal) for stack in stacks]
    most = max(math.prod(shape) for _, shape in stacks)
    together = most * sum(len(names) for names, _ in stacks) <= max(_TOGETHER, 2 * sum(sizes))
    draws: list[Array] = []
    for part in [stacks] if together else [[stack] for stack in stacks]:
        words = np.concatenate([_words(names) for names, _ in part])
        shapes = tuple((len(names), *shape) for names, shape in part)
        draws += _draw(key, words, shapes, orthogonal)
    return draws


def _scaled(
    scales: Sequence[ArrayLike], draws: Sequence[Array] | Sequence[np.ndarray]
) -> list[Array]:
    pairs = list(zip(scales, draws, strict=True))
    if all(isinstance(draw, np.ndarray) for draw in draws):
        products = [np.asarray(scale, draw.dtype) * draw for scale, draw in pairs]
        return jax.device_put(products)  # type: ignore[return-value]
    return _products(scales, draws)


@jax.jit  # apart from the draw, whose last product would be rounded otherwise
def _products(scales: Sequence[ArrayLike], draws: Sequence[Array]) -> list[Array]:
    return [scale * draw for scale, draw in zip(scales, draws, strict=True)]


def _drawn(
    key: PRNGKeyArray, names: tuple[str, ...], shape: tuple[int, int], orthogonal: bool
) -> np.ndarray:
    """What `_draw` gives for one stack, to rounding, without a program: that takes 1 s to compile.

    `jax.random.normal` with `fold_in` of a key of JAX's default kind, in NumPy.
    """
    dtype = np.dtype(jnp.result_type(float))
    known = np.asarray(jax.random.key_data(key))
    zeros = np.zeros((len(names), 1), np.uint32)
    own = known[0] + zeros, known[1] + zeros
    for word in _words(names).T:
        own = _threefry(own, (zeros, word[:, None]))
    # The counts of 64 bits fit into 32, see `_TOGETHER`.
    count = np.arange(math.prod(shape), dtype=np.uint32)
    high, low = _threefry(own, (np.zeros_like(count), count))
    wide = dtype == np.float64
    bits = high.astype(np.uint64) << np.uint64(32) | low if wide else high ^ low
    # Random mantissas of numbers in [1, 2), and from there to (-1, 1).
    info = np.finfo(dtype)
    one = np.ones((), dtype).view(bits.dtype)
    unit = (bits >> bits.dtype.type(info.bits - info.nmant) | one).view(dtype) - dtype.type(1)
    least = np.nextafter(dtype.type(-1), dtype.type(0))
    uniform = np.maximum(least, unit * (dtype.type(1) - least) + least)
    normal = np.sqrt(2).astype(dtype) * erfinv(uniform)
    if not orthogonal:
        return normal.reshape(-1, *shape)
    q, r = np.linalg.qr(normal.reshape(-1, max(shape), min(shape)))
    frames = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None]
    return frames if shape[0] >= shape[1] else np.swapaxes(frames, 1, 2)


def _threefry(
    key: tuple[np.ndarray, np.ndarray], count: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The hash Threefry-2x32 of 20 rounds (Salmon et al. 2011), JAX's generator."""
    keys = (*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    a, b = count[0] + keys[0], count[1] + keys[1]
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            a = a + b
            b = (b << np.uint32(turn) | b >> np.uint32(32 - turn)) ^ a
        a = a + keys[(block + 1) % 3]
        b = b + keys[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


def _is_counter(key: PRNGKeyArray) -> bool:
    """Whether the key is of JAX's default generator, of which `_drawn` is a copy."""
    return (
        is_concrete(key)
        and jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
        and str(jax.random.key_impl(key)) == "threefry2x32"
    )


@functools.partial(jax.jit, static_argnames=("shapes", "orthogonal"))
def _draw(
    key: PRNGKeyArray, words: Array, shapes: tuple[tuple[int, int, int], ...], orthogonal: bool
) -> list[Array]:
    """Stacks of the shapes (name, target, source), in one program.

    Every name gets as many numbers as the largest array has, and uses the first: the generator
    counts, so they are those of an array of its own size, and it is compiled once.
    """
    most = max(math.prod(shape[1:]) for shape in shapes)

    def numbers(word: Array) -> Array:
        # The generator once in the program, not once for each word.
        own, _ = jax.lax.scan(lambda k, w: (jax.random.fold_in(k, w), None), key, word)
        return standard_normal(own, (most,))

    ends = np.cumsum([shape[0] for shape in shapes])[:-1]
    parts = jnp.split(jax.vmap(numbers)(words), ends)
    return [
        _shaped(part, *shape[1:], orthogonal) for part, shape in zip(parts, shapes, strict=True)
    ]


def _shaped(numbers: Array, rows: int, columns: int, orthogonal: bool) -> Array:
    if not orthogonal:
        return numbers[:, : rows * columns].reshape(-1, rows, columns)
    tall = numbers[:, : rows * columns].reshape(-1, max(rows, columns), min(rows, columns))
    frames = jax.vmap(orthonormal)(tall)
    return frames if rows >= columns else jnp.swapaxes(frames, 1, 2)


def _words(names: Iterable[str]) -> np.ndarray:
    """64 bits of a stable hash of each name, as two words (Python's own hash is salted)."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    return np.array([np.frombuffer(digest, "<u4") for digest in digests], np.uint32)


__getattr__, __dir__ = namespace(__name__)
