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
) -> list[Array | np.ndarray]:
    """One array (name, target, source) per stack, each name's from a key of its own.

    Matrices of a known key are made orthonormal in NumPy: LAPACK as well, but no program for each
    shape.
    """
    sizes = [len(names) * math.prod(shape) for names, shape in stacks]
    known = sum(sizes) <= _TOGETHER and is_concrete(key) and not is_traced()
    most = max(math.prod(shape) for _, shape in stacks)
    together = most * sum(len(names) for names, _ in stacks) <= max(_TOGETHER, 2 * sum(sizes))
    draws: list[Array | np.ndarray] = []
    for part in [stacks] if together else [[stack] for stack in stacks]:
        words = np.concatenate([_words(names) for names, _ in part])
        numbers = _numbers(key, words, max(math.prod(shape) for _, shape in part))
        numbers = np.asarray(numbers) if known else numbers
        ends = np.cumsum([len(names) for names, _ in part])
        for end, (names, shape) in zip(ends, part, strict=True):
            own = numbers[end - len(names) : end]
            draws.append(_shaped(own, *shape, orthogonal))
    return draws


def _scaled(scales: Sequence[ArrayLike], draws: Sequence[Array | np.ndarray]) -> list[Array]:
    known = [draw for draw in draws if isinstance(draw, np.ndarray)]
    if len(known) < len(draws):
        return _products(scales, draws)
    pairs = zip(scales, known, strict=True)
    return jax.device_put([np.asarray(scale, draw.dtype) * draw for scale, draw in pairs])


@jax.jit  # apart from the draw, whose last product would be rounded otherwise
def _products(scales: Sequence[ArrayLike], draws: Sequence[Array | np.ndarray]) -> list[Array]:
    return [jnp.multiply(scale, draw) for scale, draw in zip(scales, draws, strict=True)]


@functools.partial(jax.jit, static_argnames="count")
def _numbers(key: PRNGKeyArray, words: Array, count: int) -> Array:
    """Normal numbers (name, count).

    The generator counts, so the first ones are those of a smaller array, and it is compiled once.
    """

    def own(word: Array) -> Array:
        # The generator once in the program, not once for each word.
        folded, _ = jax.lax.scan(lambda k, w: (jax.random.fold_in(k, w), None), key, word)
        return standard_normal(folded, (count,))

    return jax.vmap(own)(words)


def _shaped(
    numbers: Array | np.ndarray, rows: int, columns: int, orthogonal: bool
) -> Array | np.ndarray:
    numbers = numbers[:, : rows * columns]
    if not orthogonal:
        return numbers.reshape(-1, rows, columns)
    tall = numbers.reshape(-1, max(rows, columns), min(rows, columns))
    if isinstance(tall, np.ndarray):
        q, r = np.linalg.qr(tall)
        frames = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None]
    else:
        frames = _orthonormal(tall)
    return frames if rows >= columns else frames.swapaxes(1, 2)


_orthonormal = jax.jit(jax.vmap(orthonormal))


def _words(names: Iterable[str]) -> np.ndarray:
    """64 bits of a stable hash of each name, as two words (Python's own hash is salted)."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    return np.array([np.frombuffer(digest, "<u4") for digest in digests], np.uint32)


__getattr__, __dir__ = namespace(__name__)
