"""Checks of tied and frozen parameters: which edges share an array, which arrays never move."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gdln_jax._checks import listed, suggest

# Edge -> (|target|, |source|), in the order of the edges.
Shapes = Mapping[str, tuple[int, int]]


class Use(NamedTuple):
    """An edge whose matrix is the array of a parameter, or its transpose."""

    edge: str
    transposed: bool


Classes = tuple[tuple[str, tuple[Use, ...]], ...]


def checked_classes(shapes: Shapes, shared: Mapping[str, Sequence[str]]) -> Classes:
    """The classes by their first edges, and the uses of each in the order of the edges."""
    if not isinstance(shared, Mapping):
        raise ValueError(
            f"shared is a {type(shared).__name__}; pass a mapping from the name of a parameter to "
            'the edges that share it, such as {"W": ["x->h", "h->y^T"]}.'
        )
    odd = next((edge for edge in shapes if edge.endswith("^T")), None)
    if odd is not None:
        raise ValueError(
            f"the edge name {odd!r} ends in '^T', which means a transpose in shared: rename it."
        )
    place = {edge: k for k, edge in enumerate(shapes)}
    taken: dict[str, str] = {}
    classes = []
    for name, given in shared.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"the class name {name!r} in shared is not a non-empty string.")
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise ValueError(
                f"shared[{name!r}] is {given!r}; pass a list of at least one edge, each 'e' or "
                "'e^T'."
            )
        uses = [Use(str(use).removesuffix("^T"), str(use).endswith("^T")) for use in given]
        for edge, _ in uses:
            if edge not in shapes:
                raise ValueError(
                    f"shared[{name!r}] names {edge!r}, which is no edge"
                    f"{suggest(edge, shapes)}; edges: {listed(shapes)}."
                )
            if edge in taken:
                where = "twice" if taken[edge] == name else f"in shared[{taken[edge]!r}] too"
                raise ValueError(
                    f"shared[{name!r}] names the edge {edge!r}, which is used {where}; an edge has "
                    "one array."
                )
            taken[edge] = name
        uses.sort(key=lambda use: place[use.edge])
        _check_shapes(shapes, name, uses)
        classes.append((name, tuple(uses)))
    for name in shared:
        if name in shapes and taken.get(name) != name:
            raise ValueError(
                f"the class name {name!r} in shared is also an edge outside of the class: give the "
                "class another name."
            )
    return tuple(sorted(classes, key=lambda item: place[item[1][0].edge]))


def _check_shapes(edges: Shapes, name: str, uses: Sequence[Use]) -> None:
    shapes = [edges[edge][:: -1 if transposed else 1] for edge, transposed in uses]
    for use, shape in zip(uses, shapes, strict=True):
        if shape != shapes[0]:
            first, this = (
                f"{edge}^T" if transposed else edge for edge, transposed in (uses[0], use)
            )
            raise ValueError(
                f"shared[{name!r}] ties edges of different shapes: {first!r} has {shapes[0]} and "
                f"{this!r} {shape}, (|target|, |source|) of the array; tie edges of one shape, or "
                "add or drop '^T'."
            )


def checked_frozen(
    parameters: Shapes, parameter_of: Mapping[str, tuple[str, bool]], frozen: Sequence[str]
) -> tuple[str, ...]:
    """The frozen parameters in the order of the graph's."""
    if isinstance(frozen, str) or not isinstance(frozen, Iterable):
        raise ValueError(f"frozen is {frozen!r}; pass a list of parameters, such as ['x->h'].")
    frozen = tuple(frozen)
    for name in frozen:
        if name not in parameters:
            member = parameter_of.get(name)
            remedy = (
                f"belongs to the class {member[0]!r}: freeze the class"
                if member
                else f"is no parameter{suggest(str(name), parameters)}; parameters: "
                f"{listed(parameters)}"
            )
            raise ValueError(f"frozen names {name!r}, which {remedy}.")
    if len(set(frozen)) == len(parameters):
        raise ValueError("frozen names all parameters, so there is nothing to train.")
    return tuple(name for name in parameters if name in frozen)
