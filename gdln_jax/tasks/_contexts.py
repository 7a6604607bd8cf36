"""Semantic cognition in several contexts (H Fig. 3-5): items whose features depend on a context.

The arrays are H's, as rows; pathways are gated graphs over them, and the ungated chain is what a
ReLU network is trained on.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from gdln_jax._checks import check_integer, check_positive, listed, suggest
from gdln_jax._data.gated import GatedData
from gdln_jax._graph import Graph
from gdln_jax.tasks._hierarchy import hierarchy_features
from gdln_jax.tasks._task import Meta, Task

_STRUCTURES = ("hierarchy", "ring", "cross")
_RING = (0.0, 0.33, 0.66, 1.0, 1.0, 0.66, 0.33, 0.0)
_CROSSED_PAIRS = ((0, 2), (1, 3), (4, 6), (5, 7))
# H Table 1: units per pathway, and of the ReLU network.
_WIDTH, _RELU_WIDTH = 100, 700


def semantic_contexts(
    num_contexts: int = 3,
    *,
    structures: str | Sequence[str] = "same",
    pathways: str | None = None,
    residual: bool = False,
    num_items: int = 8,
    width: int | None = None,
    context_scale: float | int = 1.0,
) -> Task:
    r"""Name the features of n items in C contexts, each with a structure of its own.

    X is (n+C) x nC: one-hot items over one-hot contexts. Y is (C+1)(2n-1) x nC (E18): a
    hierarchy in every context, then for each context a block that is 0 in all others. Here both
    are transposed, examples as rows, context by context.

    Input node `x` holds all of X and feeds the common pathway `common`, which is always on.
    Input node `items` holds the item rows only and feeds the contextual pathways, each on in
    some contexts and named after them: `in_0_2`. All end in the output node `y`.

    Args:
        num_contexts: C.
        structures: `"same"`: hierarchy in all contexts (H Fig. 5). `"different"`: hierarchy, ring,
            cross, for C = 3 and n = 8 (H Fig. 3-4). Or one of these names per context.
        pathways: joined by `+`: `common`; contextual ones that are on in every choice of 1
            (`single`), 2 (`double`), 3 (`triple`), 4 (`quad`) or C - 1 (`most`) contexts; or `all`:
            the common one and one for every proper subset (seven for C = 3). Default `common+most`,
            for C = 3 the same as `common+double` (H Table 1), and `most` if `residual`.
            `none`: the ungated chain `x`, `h1`, `y` for ReLU networks.
        residual: the target is what the common pathway leaves: Y minus its best fit by a linear map
            of X (an additive model of item and context). A common pathway would stay at 0 and is
            refused.
        num_items: n, a power of two; ring and cross need 8.
        width: units of each pathway; default 100, and 700 for the ungated chain (H Table 1).
        context_scale: size c of the one-hot contexts in the inputs. H prints 1; the public code of
            H Fig. 5 has 1, 1.1, 1.35 for C = 3, 4, 5 (E26). Losses at the start and after the
            additive fit, and all contextual modes, do not depend on it. The common modes do: with
            equal structures and n = 8, all items and contexts together have s = sqrt(15 (C+1) (C +
            8 c^2)) and d = C + 8 c^2, the contrasts of contexts s = c sqrt(120) and d = 8 c^2
            (sums). d belongs to the mode's own v, d = v^T X X^T v; counted off by size, as H Eq. 7
            has it, it is another mode's unless c > sqrt(7 C (C+1)/120) (E27).

    `meta`: `x` (n C, n+C) and `y` as plain arrays, `item` and `context` of each example,
    `active`: pathway -> contexts it is on in, `loss_scale` = nC; losses `initial_loss` and
    `additive_loss` (after the best additive fit) and `singular_values` of Sigma^yx = Y X^T/(nC).
    These are means over examples, as everywhere here; H's sums are `loss_scale` times as large.
    As sums: different structures 105.623, 16.5084333, and 27.425, 14.650, 10.954, ...; same
    structures, n = 8: 32 C and 17 (C-1)/2, that is 96, 17 for C = 3.
    `commutator`: ||A G - G A|| / ||A G|| (Frobenius) of A = X X^T and G = (Y X^T)^T Y X^T: 0
    where the common pathway has exact modes (same structures), 0.047 for different ones, whose
    reduction must stay coupled.

    With equal structures and contextual pathways of one kind, on in m contexts each, `s` and `d`
    are strength and variance of their modes on the residual, with the signs and scale of
    theory#contexts: nC s = sqrt(m (C-m)/C) sigma and nC d = m, sigma the singular values of the
    centred hierarchy (sqrt7, sqrt3 twice, 1 four times for n = 8). For m = C-1, U_p^T U_j =
    -1/(C-1) on these modes and D(j,p)/D(p,p) = (C-2)/(C-1), so all B_p stay equal and
    tau dB/dt = 2 B (s - B d/(C-1)), whose solution is E17 (E16; H App. F-G print the wrong
    overlaps for C = 4, 5). m and C-m tie in s (E23).

    `residual` with `most` reduces exactly, to one symmetry class. Beside a common pathway no
    frames are exact, with equal structures either: the contextual pathways grow on the common
    target first, and their mean over items meets several of the common pathway's modes
    (`reduce` measures 0.55 of the gradient off the frames for C = 3, 0.58 with different
    structures). H treats the two phases apart; that follows the joint network to 0.1 % of L(0)
    only from the initial values of theory#head-start.

    Raises:
        ValueError: for fewer than 2 contexts, a number of items that is no power of two, structures
            or pathways that are unknown or do not fit the number of contexts, and a `context_scale`
            that is not above 0.
    """
    c = check_integer(num_contexts, "num_contexts", minimum=2)
    n = check_integer(num_items, "num_items", minimum=2)
    if n & (n - 1):
        raise ValueError(f"num_items is {n}; a binary hierarchy needs a power of two.")
    scale = check_positive(context_scale, "context_scale")
    names = _checked_structures(structures, c, n)
    if pathways is None:
        pathways = "most" if residual else "common+most"
    common, sets = _parse_pathways(pathways, c)
    if residual and common and sets is not None:
        raise ValueError(
            f"pathways {pathways!r} has a common pathway, which has nothing to learn from the "
            "residual; leave out 'common', or residual=True."
        )
    x, y = _arrays(names, n, scale)
    additive = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    target = y - additive if residual else y
    context = np.repeat(np.arange(c), n)
    meta: Meta = {
        "x": x,
        "y": target,
        "item": np.tile(np.arange(n), c),
        "context": context,
        "structures": names,
        "loss_scale": n * c,
        "initial_loss": float(0.5 * np.sum(target**2) / (n * c)),
        "additive_loss": float(0.5 * np.sum((y - additive) ** 2) / (n * c)),
        "singular_values": np.linalg.svd(target.T @ x / (n * c), compute_uv=False),
        "commutator": _commutator(x, y),
        **_mode_facts(names, sets, n, c),
    }
    if sets is None:
        width = check_integer(_RELU_WIDTH if width is None else width, "width", minimum=1)
        graph = Graph.chain([x.shape[1], width, y.shape[1]])
        return Task(graph, GatedData({"x": x}, {"y": target}), "semantic_contexts", meta)
    width = check_integer(_WIDTH if width is None else width, "width", minimum=1)
    graph, data, meta["active"] = _gated(x, target, context, common, sets, n, width)
    return Task(graph, data, "semantic_contexts", meta)


def structure(name: str, num_items: int = 8) -> np.ndarray:
    """Return features (2n-1, n) of one context: `"hierarchy"`, `"ring"`, `"cross"` (H Fig. 3).

    Hierarchy: one row per node of a binary tree. Cross: the same with the pair rows {0,2}, {1,3},
    {4,6}, {5,7}. Ring: a row of ones, then 14 rows of a bump 0, 0.33, 0.66, 1, 1, 0.66, 0.33, 0
    that is rolled by one place to the left from row to row. Ring and cross exist for 8 items.
    """
    if name not in _STRUCTURES:
        raise ValueError(
            f"structure is {name!r}; it must be one of {listed(_STRUCTURES)}"
            f"{suggest(str(name), _STRUCTURES)}."
        )
    tree = hierarchy_features(num_items.bit_length(), 1)
    if name == "hierarchy":
        return tree
    if num_items != 8:
        raise ValueError(f"structure {name!r} is defined for 8 items, not for {num_items}.")
    if name == "ring":
        return np.stack([np.ones(8), *(np.roll(_RING, -k) for k in range(14))])
    pairs = [np.isin(np.arange(8), pair).astype(float) for pair in _CROSSED_PAIRS]
    return np.concatenate([tree[:3], np.stack(pairs), tree[7:]])


def _checked_structures(structures: str | Sequence[str], c: int, n: int) -> tuple[str, ...]:
    if isinstance(structures, str):
        known = {"same": ("hierarchy",) * c, "different": _STRUCTURES}
        if structures not in known:
            raise ValueError(
                f"structures is {structures!r}; it must be 'same', 'different' or a sequence of "
                f"{listed(_STRUCTURES)}, one per context{suggest(structures, known)}."
            )
        structures = known[structures]
    names = tuple(structures)
    if len(names) != c:
        raise ValueError(
            f"there are {len(names)} structures for num_contexts = {c}; give one per context."
        )
    for name in names:
        structure(name, n)
    return names


def _parse_pathways(pathways: str, c: int) -> tuple[bool, list[tuple[int, ...]] | None]:
    """Return whether there is a common pathway, and the contexts of the others; None: no gates."""
    if pathways == "none":
        return False, None
    counts = {"single": 1, "double": 2, "triple": 3, "quad": 4, "most": c - 1}
    words = pathways.split("+") if isinstance(pathways, str) else []
    known = ("common", *counts, "all", "none")
    if "all" in words:
        words = ["common", "all"] if set(words) == {"all"} else []
    for word in words:
        if word not in known or word == "none":
            raise ValueError(
                f"pathways is {pathways!r}; {word!r} is not one of {listed(known)}"
                f"{suggest(word, known)}."
            )
    if not words or len(set(words)) < len(words):
        raise ValueError(
            f"pathways is {pathways!r}; join different words with '+', e.g. 'common+double'; "
            "'all' and 'none' stand alone."
        )
    sizes = sorted({counts[word] for word in words if word in counts})
    if words[-1] == "all":
        sizes = list(range(1, c))
    for size in sizes:
        if size >= c:
            raise ValueError(
                f"pathways {pathways!r} asks for pathways in {size} of {c} contexts; a contextual "
                "pathway is off in at least one ('common' is the one that is always on)."
            )
    return "common" in words, [s for size in sizes for s in itertools.combinations(range(c), size)]


def _arrays(names: tuple[str, ...], n: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return X and Y with examples as rows; contexts in X are `scale` in size."""
    c, rows = len(names), 2 * n - 1
    contexts = scale * np.repeat(np.eye(c), n, axis=0)
    x = np.concatenate([np.tile(np.eye(n), (c, 1)), contexts], axis=1)
    y = np.zeros((n * c, (c + 1) * rows))
    for k, name in enumerate(names):
        here = slice(n * k, n * (k + 1))
        y[here, :rows] = structure("hierarchy", n).T
        y[here, rows * (k + 1) : rows * (k + 2)] = structure(name, n).T
    return x, y


def _commutator(x: np.ndarray, y: np.ndarray) -> float:
    a, g = x.T @ x, (y.T @ x).T @ (y.T @ x)
    return float(np.linalg.norm(a @ g - g @ a) / np.linalg.norm(a @ g))


def _mode_facts(names: tuple[str, ...], sets: list[tuple[int, ...]] | None, n: int, c: int) -> Meta:
    kinds = {len(s) for s in sets or ()}
    if len(kinds) != 1 or set(names) != {"hierarchy"}:
        return {}
    m = kinds.pop()
    centred = structure("hierarchy", n)
    centred = centred - centred.mean(axis=1, keepdims=True)
    sigma = np.linalg.svd(centred, compute_uv=False)[: n - 1]
    return {"s": np.sqrt(m * (c - m) / c) * sigma / (n * c), "d": m / (n * c)}


def _gated(
    x: np.ndarray,
    y: np.ndarray,
    context: np.ndarray,
    common: bool,
    sets: list[tuple[int, ...]],
    n: int,
    width: int,
) -> tuple[Graph, GatedData, dict[str, tuple[int, ...]]]:
    contexts = tuple(range(int(context.max()) + 1))
    active = {"common": contexts} if common else {}
    active |= {"in_" + "_".join(map(str, s)): s for s in sets}
    sources = {h: "x" if h == "common" else "items" for h in active}
    inputs = {"x": x, "items": x[:, :n]}
    inputs = {k: v for k, v in inputs.items() if k in sources.values()}
    nodes = {
        **{k: v.shape[1] for k, v in inputs.items()},
        **dict.fromkeys(active, width),
        "y": y.shape[1],
    }
    graph = Graph(nodes, [*((s, h) for h, s in sources.items()), *((h, "y") for h in sources)])
    gates = {h: np.isin(context, s).astype(float) for h, s in active.items() if h != "common"}
    return graph, GatedData(inputs, {"y": y}, gates), active
