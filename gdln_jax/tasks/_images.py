"""Transformed images as a routing task (N Sec. 5, App. D): M views, M label permutations."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from typing_extensions import TypeAliasType

from gdln_jax._checks import check_integer
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.boundary import check_random_key
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import Block, PackedData
from gdln_jax._data.packing import pack_blocks
from gdln_jax._graph import Graph
from gdln_jax.images._network import edge_names, node_names
from gdln_jax.images._sets import ImageSet, check_pair
from gdln_jax.images._transforms import Transforms, make_transforms
from gdln_jax.tasks._routing import _matrix, _routes, spectral_gap
from gdln_jax.tasks._task import Task

Pattern = TypeAliasType("Pattern", str | np.ndarray)
Encoder = TypeAliasType("Encoder", Callable[[Array], Array])

# Images compressed at once: bounds the memory of the factorisation.
_PIECE = 6000
# Packed inputs and targets above this size are refused.
_MAX_BYTES = 2 * 2**30


def transformed_images(
    images: object,
    labels: object = None,
    *,
    num_domains: int,
    trained_per_domain: int | None = None,
    kind: str = "permutation",
    outputs: str = "random",
    pattern: Pattern = "random_biregular",
    key: PRNGKeyArray,
    width: int = 128,
    layers: tuple[int, int, int] = (1, 1, 1),
    bias: bool = False,
    compress: bool = True,
    whiten: bool = False,
    encode: Encoder | None = None,
) -> Task:
    """Transform one image set in M ways, permute its labels in M ways, with K routes per input.

    Nodes `x{i}`, `h1`, `h2`, `y{j}` as in `tasks.routing`, plus an input `one` of width 1, from
    which bias edges `bias:...` leave, with `bias`. Labels are one-hot targets.

    Args:
        images: (n, height, width[, channel]), whatever holds an array, or an `ImageSet`.
        labels: (n,), without an `ImageSet`.
        num_domains: M.
        trained_per_domain: K, as in `tasks.routing`.
        kind: as in `images.make_transforms`.
        outputs: as in `images.make_transforms`.
        pattern: the trained routes, as in `tasks.routing`.
        key: for the transformations and the routes.
        width: units of each hidden node.
        layers: numbers of layers of an encoder, of the shared pathway, of a decoder.
        bias: whether to add an input that is always 1, with edges to all other nodes.
        compress: replace the images by at most pixels + classes (+ 1) pseudo-examples before they
            are transformed. Exact for `mse` and linear maps: (T X)'s moments are T's of X's
            (`GatedData.compress`). Pass False for `cross_entropy`, for which it is wrong.
        whiten: give each input domain coordinates in which <x x^T> = I (then the reduction is
            diagonal and Eq. 15 applies); as wide as the data's rank.
        encode: as in `images.make_transforms`.

    `meta`: `images` (`ImageSet`), `transforms`, `pattern`, `routes`, `spectral_gap`,
    `label_agreement`, `layers`, `bias`. For mini-batches, leaky ReLU and thousands of routes
    train an `images.RoutedNetwork` by `images.train_images` on them.

    Raises:
        ValueError: for arrays, patterns or sizes that do not fit, and for `compress` with features
            (`encode`), which are not linear in the images.
    """
    if isinstance(images, ImageSet):
        base = images
    else:
        if labels is None:
            raise ValueError("labels are missing: pass images and labels, or an ImageSet.")
        check_pair(images, labels)
        base = ImageSet(np.asarray(images), np.asarray(labels))
    m = check_integer(num_domains, "num_domains", minimum=1)
    if encode is not None and compress:
        raise ValueError(
            "compress=True is exact only for linear maps of the images; pass compress=False with "
            "encode, or compute the features first."
        )
    check_random_key(key)
    of_transforms, of_routes = jax.random.split(key)
    transforms = make_transforms(
        kind, m, base.shape, base.classes, outputs=outputs, key=of_transforms, encode=encode
    )
    routes = _routes(m, trained_per_domain, pattern, of_routes)
    rows = condensed(base) if compress else _plain(base)
    views = _views(transforms, rows["x"], rows["weights"], whiten=whiten)
    graph = _graph(m, views[0].shape[1], base.classes, width, layers, bias=bias)
    size = 8 * len(rows["x"]) * (m * views[0].shape[1] + len(routes) * (base.classes + 1))
    if size > _MAX_BYTES:
        raise ValueError(
            f"the packed data would take {size / 2**30:.1f} GiB; use compress=True, fewer images, "
            "or images.train_images, which transforms on the fly."
        )
    matrix = _matrix(m, routes)
    meta = {
        "images": base,
        "transforms": transforms,
        "pattern": matrix,
        "routes": routes,
        "spectral_gap": spectral_gap(matrix),
        "label_agreement": transforms.label_agreement,
        "layers": layers,
        "bias": bias,
    }
    data = _packed(graph, transforms, routes, rows, views, layers, bias=bias)
    return Task(graph, data, "transformed_images", meta)


def condensed(images: ImageSet) -> dict[str, np.ndarray]:
    """Return at most pixels + classes + 1 rows `x`, `one`, `y`, `weights` of equal moments.

    Piece by piece, so that memory does not grow with the number of images.
    """
    parts = []
    for start in range(0, len(images), _PIECE):
        rows = slice(start, start + _PIECE)
        piece = ImageSet(images.images[rows], images.labels[rows], images.classes)
        small = _compress(_plain(piece))
        parts.append({**small, "weights": small["weights"] * len(piece) / len(images)})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return joined if len(parts) == 1 else _compress(joined)


def _plain(images: ImageSet) -> dict[str, np.ndarray]:
    return {
        "x": images.values(),
        "one": np.ones((len(images), 1)),
        "y": np.eye(images.classes)[images.labels],
        "weights": np.full(len(images), 1 / len(images)),
    }


def _compress(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    data = GatedData(
        {"x": rows["x"], "one": rows["one"]}, {"y": rows["y"]}, weights=rows["weights"]
    ).compress()
    return {
        "x": np.asarray(data.inputs["x"], float),
        "one": np.asarray(data.inputs["one"], float),
        "y": np.asarray(data.targets["y"], float),
        "weights": np.asarray(data.weights, float),
    }


def _views(
    transforms: Transforms, x: np.ndarray, weights: np.ndarray, *, whiten: bool
) -> list[np.ndarray]:
    dtype = np.dtype(jnp.result_type(float))
    each = (transforms.view(i, jnp.asarray(x, dtype)) for i in range(transforms.num_domains))
    views = [np.asarray(view, float) for view in each]
    if not whiten:
        return views
    root = np.sqrt(weights)[:, None]
    factors = [np.linalg.svd(root * view, full_matrices=False) for view in views]
    # The usual numerical rank; the least of all domains, so that all are equally wide.
    ranks = [int((s > s[0] * math.sqrt(s.size) * 1e-10).sum()) for _, s, _ in factors]
    if len(set(ranks)) > 1:
        raise ValueError(
            f"input domains have ranks {min(ranks)} to {max(ranks)}, so whitened ones would differ "
            "in width; whiten only permutations, or drop pixels that never vary."
        )
    return [u[:, :rank] / root for (u, _, _), rank in zip(factors, ranks, strict=True)]


def _graph(
    m: int, inputs: int, classes: int, width: int, layers: tuple[int, int, int], *, bias: bool
) -> Graph:
    steps = node_names(m, layers)
    names, bias_names = edge_names(m, layers, bias=bias)
    nodes: dict[str, int] = {f"x{i}": inputs for i in range(m)}
    nodes |= {"one": 1} if bias else {}
    for layer in steps:
        for _, target in layer:
            nodes.setdefault(target, classes if target[0] == "y" and "." not in target else width)
    edges: list[tuple[str, str, str]] = []
    for layer, edge, row in zip(steps, names, bias_names, strict=True):
        edges += [(a, b, name) for (a, b), name in zip(layer, edge, strict=True)]
        edges += [("one", b, name) for (_, b), name in zip(layer, row, strict=bool(row))]
    return Graph(nodes, edges)


def _packed(
    graph: Graph,
    transforms: Transforms,
    routes: np.ndarray,
    rows: dict[str, np.ndarray],
    views: list[np.ndarray],
    layers: tuple[int, int, int],
    *,
    bias: bool,
) -> PackedData:
    m, n = transforms.num_domains, len(rows["x"])
    names, bias_names = edge_names(m, layers, bias=bias)
    order = np.argsort(np.asarray(transforms.outputs), axis=1)
    inner, shared, _ = layers
    dtype = np.dtype(jnp.result_type(float))
    weights = (rows["weights"] / len(routes)).astype(dtype)
    blocks = []
    for r, (i, j) in enumerate(routes.tolist()):
        gates: dict[str, float] = {}
        for number, (edge, row) in enumerate(zip(names, bias_names, strict=True)):
            place = i if number < inner else 0 if number < inner + shared else j
            gates |= {group[place]: 1.0 for group in (edge, row) if group}
        inputs = {f"x{i}": views[i].astype(dtype)}
        inputs |= {"one": rows["one"].astype(dtype)} if bias else {}
        # Label c of the base is outputs[j, c]; column outputs[j, c] is the base's column c.
        targets = {f"y{j}": rows["y"][:, order[j]].astype(dtype)}
        blocks.append(Block(inputs, targets, gates, weights, np.arange(r * n, (r + 1) * n)))
    return pack_blocks(graph, blocks, len(routes) * n, dtype)
