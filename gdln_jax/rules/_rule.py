"""What a rule is: an optax transformation that knows its kind and its settings."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import optax

from gdln_jax._checks import Suggesting
from gdln_jax._graph import Graph
from gdln_jax.rules._rows import per_edge_columns, rows

Optional = optax.GradientTransformation | None


class InexactRuleError(ValueError):
    """An optimiser that leaves the aligned manifold, or acts as another rule on strengths."""


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
    """The `update` of a rule; it carries what describes the rule, as jit rebuilds the tuple.

    Equal to another of the same function: settings are what that was made from.
    """

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Update) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.kind, self.equivariant, self.function


class Rule(optax.GradientTransformationExtraArgs):
    """An optimiser of `gdln_jax.rules`; use it like any of optax.

    - `kind`: the name of the function that made it.
    - `settings`: its arguments.
    - `equivariant`: whether it commutes with orthogonal changes of basis by construction, so that
      it needs no certificate. False where it holds an optax transformation (`by_edge`, `sam`,
      `per_matrix`).
    """

    update: Update

    __getattr__ = Suggesting.__getattr__

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

    def edge_settings(self, graph: Graph, names: Sequence[str] | None = None) -> np.ndarray:
        """Return what distinguishes edges for the rule, (edge, column): rates and shape factors.

        Parameters in the order of stores (without ties, of bundles), or those of `names`. Edges
        with equal rows are treated alike.
        """
        settings = self.settings
        if names is None:
            names = graph.moving
        if self.kind == "by_edge":
            return _settings_by_group(self, graph, names)
        if self.kind == "sam":
            return _settings_of(settings["inner"], graph, names)
        if self.kind == "per_matrix":
            return _settings_of(None, graph, names)
        rate, factor = settings["learning_rate"], settings.get("shape_factor")
        return per_edge_columns(graph, names, rate, factor)

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"rules.{self.kind}({given})"


def _settings_of(inner: object, graph: Graph, names: Sequence[str]) -> np.ndarray:
    if isinstance(inner, Rule):
        return inner.edge_settings(graph, names)
    return np.zeros((len(names), 0))


def _settings_by_group(rule: Rule, graph: Graph, names: Sequence[str]) -> np.ndarray:
    """The number of each edge's optimiser, then what that one tells its edges apart by."""
    chosen = [chosen_for(name, **rule.settings) for name in names]
    distinct = list({id(one): one for one in chosen}.values())
    parts = []
    for number, one in enumerate(distinct):
        where = [k for k, other in enumerate(chosen) if other is one]
        inner = _settings_of(one, graph, [names[k] for k in where])
        parts.append((where, np.insert(inner, 0, number, axis=1)))
    table = np.zeros((len(names), max(part.shape[1] for _, part in parts)))
    for where, part in parts:
        table[where, : part.shape[1]] = part
    return table


def chosen_for(
    name: str, optimizers: Mapping[str, Optional], default: Optional | EllipsisType
) -> Optional:
    """The optimiser of an edge under `by_edge`; None: it is frozen.

    Raises:
        ValueError: an edge that is not named where there is no default.
    """
    chosen = optimizers.get(name, default)
    if isinstance(chosen, EllipsisType):
        raise ValueError(
            f"by_edge lacks edge {name!r}: name it, or pass default= an optimiser for all edges "
            "that are not named (default=None freezes them)."
        )
    return chosen


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


def check_transformation(given: object, name: str) -> optax.GradientTransformation:
    """Return an optimiser; raise `ValueError` for anything else."""
    if not isinstance(given, optax.GradientTransformation):
        remedy = ", .gradient_transformation()" if isinstance(given, optax.MultiSteps) else ""
        raise ValueError(f"{name} is {given!r}; pass a rule or an optax optimiser{remedy}.")
    return given
