"""Names of features and examples, which pandas and xarray have beside the numbers.

Names are no part of what JAX sees: a pytree without leaves, so that other names need no other
program, and forgotten by every operation on leaves, which may have moved the rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gdln_jax._checks import check_keys


class Names(NamedTuple):
    """Names of what an array (examples, features) holds; None where there are none.

    - `features`: one name per column.
    - `items`: one name per example.
    """

    features: tuple[str, ...] | None = None
    items: tuple[str, ...] | None = None


# What a caller may give: a pair (features, items).
NamesLike = Names | tuple[Iterable[object] | None, ...]

UNNAMED = Names()


@jax.tree_util.register_pytree_node_class
class Labels:
    """Node -> `Names`. A pytree without leaves that is empty again when JAX rebuilds it."""

    def __init__(self, by_node: Mapping[str, Names] | None = None):
        self.by_node = {k: v for k, v in (by_node or {}).items() if v != UNNAMED}

    def tree_flatten(self) -> tuple[tuple[()], None]:
        """Return no leaves and nothing static."""
        return (), None

    @classmethod
    def tree_unflatten(cls, aux: None, leaves: Iterable[object]) -> "Labels":
        """Return empty labels."""
        del aux, leaves
        return cls()


def labels_of(nodes: Mapping[str, object], given: Iterable[object]) -> Labels:
    """Collect the names that arrays of pandas or xarray have.

    Examples of a node without row names of its own are called as those of the first array in
    `given` that has some: all arrays are paired by position.
    """
    shared = next((items for value in given if (items := _texts(_row_labels(value)))), None)
    return Labels(
        {
            node: Names(_texts(_feature_labels(value)), _texts(_row_labels(value)) or shared)
            for node, value in nodes.items()
        }
    )


def checked_labels(
    names: Mapping[str, NamesLike], widths: Mapping[str, int], num_examples: int
) -> Labels:
    """Return labels of the nodes in `widths`, as a caller gives them (`GatedData.with_names`)."""
    check_keys(names, widths, "names", "an input or output node of these data")
    checked = {}
    for node, pair in names.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(f"names[{node!r}] is {pair!r}; pass a pair (features, items).")
        one = Names(*(_texts(labels) for labels in pair))
        for labels, count, kind in zip(
            one, (widths[node], num_examples), Names._fields, strict=True
        ):
            if labels is not None and len(labels) != count:
                raise ValueError(
                    f"names[{node!r}] has {len(labels)} {kind}, but the data have {count}."
                )
        checked[node] = one
    return Labels(checked)


def of_examples(labels: Labels, index: np.ndarray | None) -> Labels:
    """Return the labels of the examples at `index`; None: of examples that nobody named."""

    def chosen(items: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if items is None or index is None else tuple(items[i] for i in index)

    return Labels({k: Names(v.features, chosen(v.items)) for k, v in labels.by_node.items()})


def in_common(labels: Sequence[Labels]) -> Labels:
    """Return what several data sets with the same nodes call alike.

    Raises:
        ValueError: features of one node that are named differently, or in another order.
    """
    check_same_features(labels)
    every = [one.by_node for one in labels]
    nodes = dict.fromkeys(node for one in every for node in one)
    found = {}
    for node in nodes:
        named = [one.get(node, UNNAMED) for one in every]
        features = next((n.features for n in named if n.features is not None), None)
        items = {n.items for n in named}
        found[node] = Names(features, items.pop() if len(items) == 1 else None)
    return Labels(found)


def check_row_labels(given: Mapping[str, object]) -> None:
    """Raise `ValueError` where two arrays carry row labels that name the rows differently.

    Arrays are paired by position. Labels (the index of a pandas object, the coordinates of the
    first dimension of a DataArray) may be missing, or have nothing in common; if they do name the
    same rows, they must do so in the same order. Rows numbered from 0 are taken to be unnamed
    where the other array has only some of these numbers.
    """
    seen: list[tuple[str, Any]] = []
    for name, value in given.items():
        labels = _row_labels(value)
        if labels is None:
            continue
        for other, known in seen:
            if labels.equals(known):
                break
            if len(labels) == len(known):
                _check_pair(name, labels, other, known)
        else:
            seen.append((name, labels))


def check_same_features(labels: Iterable[Labels]) -> None:
    """Raise `ValueError` where data sets that take turns name the features of a node differently.

    Row names may differ: each phase has examples of its own.
    """
    seen: dict[str, tuple[int, tuple[str, ...]]] = {}
    for number, one in enumerate(labels):
        for node, names in one.by_node.items():
            if names.features is None:
                continue
            first, known = seen.setdefault(node, (number, names.features))
            if names.features != known:
                k = next(
                    k
                    for k, pair in enumerate(zip(names.features, known, strict=False))
                    if pair[0] != pair[1]
                )
                raise ValueError(
                    f"datas[{number}] and datas[{first}] feed the same units of node {node!r}, but "
                    f"name the features differently (feature {k}: {names.features[k]!r} beside "
                    f"{known[k]!r}). Bring both into one order, of DataFrames b[a.columns], or "
                    "pass .to_numpy() to take the columns in their present order."
                )


def _check_pair(name: str, labels: Any, other: str, known: Any) -> None:
    shared = labels.isin(known)
    if shared.all() and known.isin(labels).all():
        said = "the same row labels in another order"
    elif shared.any() and not (_numbered(labels) or _numbered(known)):
        said = "only some of the row labels of the other"
    else:
        return
    i = int(np.argmax([a != b for a, b in zip(labels, known, strict=True)]))
    raise ValueError(
        f"{name} and {other} are paired row by row, but {name} has {said} (row {i}: {labels[i]!r} "
        f"beside {known[i]!r}). Bring both into one order, of pandas objects b.reindex(a.index) "
        "or b.loc[a.index], of DataArrays b.reindex_like(a), or pass .to_numpy() to pair the rows "
        "by position."
    )


def _row_labels(value: object) -> Any:
    """The pandas index of the rows of a DataFrame, Series or DataArray, else None."""
    index = getattr(value, "index", None)
    if hasattr(index, "equals") and hasattr(index, "isin"):
        return index
    return _coordinates(value, 0)


def _feature_labels(value: object) -> Any:
    """The labels of the columns of a DataFrame or a two-dimensional DataArray, else None."""
    columns = getattr(value, "columns", None)
    return _coordinates(value, 1) if columns is None else columns


def _coordinates(value: object, axis: int) -> Any:
    dims, indexes = getattr(value, "dims", ()), getattr(value, "indexes", {})
    named = isinstance(dims, tuple) and len(dims) > axis and isinstance(indexes, Mapping)
    return indexes.get(dims[axis]) if named else None


def _texts(labels: Any) -> tuple[str, ...] | None:
    """Labels as text; None for no labels, and for rows or columns that are only numbered."""
    if labels is None or _numbered(labels):
        return None
    return tuple(
        ", ".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in labels
    )


def _numbered(labels: object) -> bool:
    """Whether rows are labelled 0, 1, 2, ..., which pandas does where no labels are given."""
    return getattr(labels, "start", None) == 0 and getattr(labels, "step", None) == 1
