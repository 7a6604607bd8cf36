"""What a rule is: an optax transformation that knows its kind and its settings."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optax

from gdln_jax._graph import Graph
from gdln_jax.rules._rows import per_edge_columns, rows


class InexactRuleError(ValueError):
    """An optimiser that leaves the aligned manifold, or is another rule there."""


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
    """The `update` of a rule; it carries what describes the rule, as jit rebuilds the tuple."""

    function: Callable[..., tuple[optax.Updates, optax.OptState]]
    kind: str
    settings: Mapping[str, Any]
    equivariant: bool

    def __call__(
        self,
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[optax.Updates, optax.OptState]:
        """Return the updates and the new state."""
        return self.function(updates, state, params, **extra)


class Rule(optax.GradientTransformationExtraArgs):
    """An optimiser of `gdln_jax.rules`; use it like any of optax.

    - `kind`: the name of the function that made it.
    - `settings`: its arguments.
    - `equivariant`: whether it commutes with orthogonal changes of basis by construction, so that
      it needs no certificate. False where it holds an optax transformation (`per_matrix`, `sam`).
    """

    update: Update

    @property
    def kind(self) -> str:
        """The name of the function that made the rule."""
        return self.update.kind

    @property
    def settings(self) -> Mapping[str, Any]:
        """The arguments of the rule by name."""
        return self.update.settings

    @property
    def equivariant(self) -> bool:
        """Whether the rule keeps the aligned manifold by construction."""
        return self.update.equivariant

    def edge_settings(self, graph: Graph) -> np.ndarray:
        """What the rule tells edges apart by, (edge, column): rates and shape factors.

        Edges in the order of the graph's bundles. Edges with equal rows are treated alike.
        """
        settings = self.settings
        if self.kind == "sam":
            inner = settings["inner"]
            return inner.edge_settings(graph) if isinstance(inner, Rule) else _none(graph)
        if self.kind == "per_matrix":
            return _none(graph)
        return per_edge_columns(graph, settings["learning_rate"], settings.get("shape_factor"))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"rules.{self.kind}({given})"


def _none(graph: Graph) -> np.ndarray:
    return np.zeros((len(graph.edges), 0))


def make_rule(
    kind: str,
    settings: Mapping[str, Any],
    chained: optax.GradientTransformationExtraArgs,
    *,
    equivariant: bool = True,
) -> Rule:
    """Make a rule of a transformation; parameters it cannot act on are refused by `init`."""

    def init(params: optax.Params) -> optax.OptState:
        rows(params)
        return chained.init(params)

    return Rule(init, Update(chained.update, kind, settings, equivariant))
