"""How items come apart in learning: their map over time, and the tree of their splits."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Num
from matplotlib.axes import Axes
from scipy.cluster import hierarchy

from gdln_jax import GatedData, GatedNetwork, Reduction
from gdln_jax._checks import listed
from gdln_jax.plot._curves import STEP, TIME
from gdln_jax.plot._labels import PointLabels
from gdln_jax.plot._runs import networks_of
from gdln_jax.plot._style import COLOURS, DOUBLE, figure, style
from gdln_jax.plot._text import check_text

# Above this many items their names cannot be written.
_MOST = 60
# Groups nearer than this share of the largest distance between groups have not come apart.
_TOGETHER = 0.1


def differentiation(
    run: object,
    items: GatedData | Sequence[str] | None = None,
    *,
    node: str | None = None,
    reduction: Reduction | None = None,
    ax: Sequence[Axes] | np.ndarray | None = None,
) -> list[Axes]:
    """Draw how items come apart: a map of their representations over time, and a tree of splits.

    Left: representations less their mean over items, on the two leading principal axes of all
    times together; each item's way and where it ends. Right: the tree that average linkage makes of
    the last representations. A branch divides at the time at which the distance between the centres
    of its two parts has reached half of its last value, and the time is written there. The parts of
    a group may come apart before the group does from the rest: a dot marks that time, and a dotted
    line leads from it to the branch, which divides where the group begins. Parts are not divided if
    they end closer together than a tenth of the largest such distance.

    Args:
        run: of `gradient_flow` or `train` with its models, of `solve` with its `reduction`, or a
            pair (t, representations (time, item, unit)).
        items: data whose examples are the items, with names if they have any; for a pair the names.
        node: whose activity represents an item; default the hidden node farthest from the inputs.
        reduction: that makes the networks of a solved run.
        ax: two axes, for map and tree; default a new figure of two columns' width.

    Returns:
        Both axes. Cost: one forward pass for each time.

    Raises:
        ValueError: a batch of runs, fewer than 2 items or more than 60, representations that are
            not finite, an unknown node.
    """
    with style():
        t, points, names = _represented(run, items, node, reduction)
        if ax is None:
            height = max(2.4, 0.14 * len(names))
            plane, tree = figure(DOUBLE, height).subplots(1, 2)
        else:
            plane, tree = _two(ax)
        _map(plane, points, names)
        _tree(tree, t, points, names)
        return [plane, tree]


def split_times(
    t: Num[np.ndarray, " time"], points: Float[np.ndarray, "time item unit"]
) -> tuple[Float[np.ndarray, "merge 4"], Float[np.ndarray, " merge"]]:
    """Return the tree of the last representations, as SciPy's linkage, and each split's time.

    Each split has the time of its own two parts, which may be earlier than that of a larger group;
    inf where its parts end together.
    """
    linkage = hierarchy.linkage(points[-1], "average")
    count = points.shape[1]
    members = [[k] for k in range(count)]
    for left, right, *_ in linkage.astype(int):
        members.append(members[left] + members[right])
    distances = np.stack(
        [
            np.linalg.norm(
                points[:, members[int(left)]].mean(axis=1)
                - points[:, members[int(right)]].mean(axis=1),
                axis=1,
            )
            for left, right, *_ in linkage
        ]
    )
    last = distances[:, -1]
    times = np.full(len(linkage), np.inf)
    for k in np.flatnonzero(last > _TOGETHER * last.max()):
        first = int(np.argmax(distances[k] >= last[k] / 2))
        times[k] = t[first]
        if first:
            low, high = distances[k, first - 1 : first + 1]
            part = (last[k] / 2 - low) / (high - low)
            times[k] = t[first - 1] + part * (t[first] - t[first - 1])
    return linkage, times


def principal(
    points: Float[np.ndarray, "time item unit"],
) -> tuple[Float[np.ndarray, "time item 2"], Float[np.ndarray, "2"]]:
    """Coordinates on the two leading axes of all times together, and their shares of variance.

    The last mean is at the origin.
    """
    flat = points.reshape(-1, points.shape[2])
    _, sizes, right = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    axes = right[:2]
    # Signs of axes are arbitrary: the largest entry is made positive.
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    places = (points - points[-1].mean(axis=0)) @ (axes * np.where(largest < 0, -1, 1)[:, None]).T
    share = sizes[:2] ** 2 / max(float(np.sum(sizes**2)), np.finfo(float).tiny)
    missing = 2 - len(axes)
    return np.pad(places, ((0, 0), (0, 0), (0, missing))), np.pad(share, (0, missing))


def _represented(
    run: object,
    items: GatedData | Sequence[str] | None,
    node: str | None,
    reduction: Reduction | None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Times, representations (time, item, unit) and names."""
    if isinstance(run, tuple | list) and len(run) == 2:
        t, points = np.asarray(run[0]), np.asarray(run[1], float)
        names = None if items is None or isinstance(items, GatedData) else list(items)
    else:
        networks, over_time = networks_of(run, "run", reduction)
        if not over_time:
            raise ValueError("run is one network; a map over time needs a run with its models.")
        if not isinstance(items, GatedData):
            raise ValueError(
                f"items is a {type(items).__name__}; pass gdln.GatedData whose examples are the "
                "items, such as the data of the run."
            )
        lead = networks.stacks[0].shape[:-3]
        if len(lead) != 1:
            raise ValueError(
                f"run is a batch of shape {lead[:-1]}, whose representations have no common "
                "axes; pass one run, jax.tree.map(lambda leaf: leaf[0], run)."
            )
        t = np.asarray(run.ts)  # type: ignore[attr-defined]
        points = np.asarray(activities(networks, items, node), float)
        names = item_names(items)
    if points.ndim != 3 or t.shape != points.shape[:1] or len(t) < 2:
        raise ValueError(
            f"times have shape {t.shape} and representations {points.shape}; expected (time,) and "
            "(time, item, unit), at least two times."
        )
    if not np.isfinite(points).all():
        raise ValueError("the representations are not finite; did the run diverge?")
    count = points.shape[1]
    if not 2 <= count <= _MOST:
        raise ValueError(f"there are {count} items; names can be written for 2 to {_MOST}.")
    names = [str(k + 1) for k in range(count)] if names is None else [str(name) for name in names]
    if len(names) != count:
        raise ValueError(f"items has {len(names)} names for {count} items.")
    for name in names:
        check_text(name, "a name")
    return t, points, names


def activities(networks: GatedNetwork, data: GatedData, node: str | None) -> Array:
    """Activity (..., example, unit) of a node, default the hidden one farthest from the inputs.

    Raises:
        ValueError: an unknown node; a graph without hidden nodes.
    """
    graph = networks.graph
    node = hidden_node(networks, node)

    def one(net: GatedNetwork) -> Array:
        return net.activity(data)[node]

    lead = networks.stacks[0].shape[:-3]
    flat = jax.tree.map(lambda s: s.reshape(-1, *s.shape[-3:]), networks)
    return jax.vmap(one)(flat).reshape(*lead, data.num_examples, graph.nodes[node])


def hidden_node(networks: GatedNetwork, node: str | None) -> str:
    """`node`, or the hidden one farthest from the inputs; `ValueError` where there is none."""
    graph = networks.graph
    if node is None and not graph.hidden:
        raise ValueError(f"the graph has no hidden node; name one: node={graph.outputs[-1]!r}.")
    if node is not None and node not in graph.nodes:
        raise ValueError(f"node is {node!r}; nodes: {listed(graph.nodes)}.")
    return node or [name for name in graph.order if name in graph.hidden][-1]


def item_names(data: GatedData) -> list[str] | None:
    """Names of the examples, where an array has some."""
    return next((list(one.items) for one in data.names.values() if one.items), None)


def _two(ax: Sequence[Axes] | np.ndarray) -> tuple[Axes, Axes]:
    axes = list(np.ravel(np.asarray(ax, object)))
    if len(axes) != 2 or not all(isinstance(one, Axes) for one in axes):
        raise ValueError(
            f"ax is {type(ax).__name__}; pass two Axes, for map and tree, such as "
            "plot.figure().subplots(1, 2), or leave it out."
        )
    return axes[0], axes[1]


def _map(ax: Axes, points: np.ndarray, names: Sequence[str]) -> None:
    places, share = principal(points - points.mean(axis=1, keepdims=True))
    for k in range(len(names)):
        ax.plot(*places[:, k].T, color=COLOURS["faint"], linewidth=1.0)
    ax.plot(*places[-1].T, "o", color=COLOURS["trained"], markersize=3.5, zorder=3)
    PointLabels(ax, places[-1], names, ["black"] * len(names), avoid=list(places.swapaxes(0, 1)))
    reach = 1.4 * (float(np.abs(places).max()) or 1.0)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    ax.set_xlabel(f"principal axis 1 ({share[0]:.0%})")
    ax.set_ylabel(f"principal axis 2 ({share[1]:.0%})")


def _tree(ax: Axes, t: np.ndarray, points: np.ndarray, names: Sequence[str]) -> None:
    linkage, times = split_times(t, points)
    count, end = len(names), float(t[-1])
    order = hierarchy.leaves_list(linkage)
    height = {int(leaf): float(count - 1 - k) for k, leaf in enumerate(order)}
    for k, (left, right, *_) in enumerate(linkage.astype(int)):
        height[count + k] = (height[left] + height[right]) / 2
    # From the trunk outwards: no branch divides before the one that it is a part of.
    starts = {count + len(linkage) - 1: float(t[0])}
    branches, early = [], []
    for k in reversed(range(len(linkage))):
        start, here = starts[count + k], height[count + k]
        fork = min(max(start, float(times[k])), end)
        children = [int(child) for child in linkage[k, :2]]
        branches.append(np.array([[start, here], [fork, here]]))
        branches.append(np.array([[fork, height[child]] for child in children]))
        starts.update(dict.fromkeys(children, fork))
        if times[k] < fork:
            early.append(np.array([[times[k], here], [fork, here]]))
    branches += [
        np.array([[starts[leaf], height[leaf]], [end, height[leaf]]]) for leaf in range(count)
    ]
    colour = COLOURS["trained"]
    for branch in branches:
        ax.plot(*branch.T, color=colour, linewidth=1.3, solid_capstyle="projecting")
    for branch in early:
        ax.plot(*branch.T, ":o", color=colour, linewidth=1.0, markersize=3, markevery=[0])
    there = [k for k in range(len(linkage)) if np.isfinite(times[k])]
    if there:
        marks = np.array([[times[k], height[count + k]] for k in there])
        texts = [f"{times[k]:.3g}" for k in there]
        PointLabels(ax, marks, texts, ["black"] * len(texts), avoid=[*branches, *early])
    steps = np.issubdtype(t.dtype, np.integer)
    ax.set(xlim=(t[0], end), ylim=(-0.6, count - 0.4), xlabel=STEP if steps else TIME)
    ax.yaxis.tick_right()
    ax.set_yticks([height[leaf] for leaf in range(count)], names)
    ax.tick_params(axis="y", length=0, labelsize=7)
    ax.spines["left"].set_visible(False)
