"""Names of parameters that users give with a value for each: rates, time constants, optimisers."""

from collections.abc import Mapping

from gdln_jax._checks import check_keys
from gdln_jax._graph.graph import Graph


def check_trainable(graph: Graph, given: Mapping[str, object], what: str) -> None:
    """Raise `ValueError` for a name in `given` that is no parameter which training moves."""
    for name in given:
        owner = graph.parameter_of.get(name, (name, False))[0]
        if owner in graph.frozen:
            raise ValueError(f"{what} names {name!r}, which is frozen: nothing moves it.")
        if owner != name:
            raise ValueError(
                f"{what} names {name!r}, which is not a trainable parameter: that edge uses "
                f"{owner!r}, so name {owner!r}."
            )
    kind = "a trainable parameter" if graph.tied else "an edge of the graph"
    check_keys(given, graph.trainable, what, kind)
