"""Options of the routing recipe, and what is settled before a network is trained."""

from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from gdln_jax import InexactReductionError, Reduction, reduce, tasks
from gdln_jax.recipes import _routing_runs as sim
from gdln_jax.recipes._base import Base, load_base
from gdln_jax.recipes._options import OptionError

# The hierarchy's largest s/d, from which other data take their scale (see `_scaled`).
_HIERARCHY_MAP = 185**0.5
# Zero-shot generalisation is expected below this sigma_2/sigma_1 of the route matrix (E11/12).
GAP = 0.7


@dataclass(frozen=True)
class Options:
    """Options of the recipe.

    Attributes:
        domains: M. trained: K, outputs trained per input. width: N_h. pattern: see tasks.routing.
        seeds: random networks. seed: from which they and random patterns are drawn.
        init, init_scale: random initial weights; N's sigma_0 is the gain of Xavier weights.
        amplitude: b(0) of the decoupled network.
        learning_rate, duration: of gradient descent; duration in units of tau.
        base: "hierarchy", "digits" or FILE.npz with x (n, d) and y (n, k).
        whiten: whether inputs are whitened; by default all but the hierarchy's.
        unequal: also solve a pattern with K outputs per input but not K inputs per output (E7).

    None leaves a choice to the data: initial values in the same ratio to the final ones as on the
    hierarchy (where they are .2), a stable learning rate, and time enough to learn.
    """

    domains: int = 7
    trained: int = 4
    width: int = 64
    seeds: int = 10
    seed: int = 0
    pattern: Literal["cyclic", "random_biregular", "rows_only"] = "cyclic"
    init: Literal["xavier", "orthogonal", "normal"] = "xavier"
    init_scale: float | None = None
    amplitude: float | None = None
    learning_rate: float | None = None
    duration: float | None = None
    base: str = "hierarchy"
    whiten: bool | None = None
    unequal: bool = True

    def __post_init__(self) -> None:
        for name in ("domains", "trained", "width", "seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.trained > self.domains:
            raise ValueError(
                f"trained = {self.trained} outputs per input, but there are only "
                f"{self.domains} domains"
            )
        for name in ("init_scale", "amplitude", "learning_rate", "duration"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a number above 0, got {value}")


@dataclass(frozen=True)
class Plan:
    """Everything that is settled before the first network is trained."""

    task: tasks.Task
    reduction: Reduction
    modes: sim.Modes
    base: Base
    options: Options
    amplitude: float
    init_scale: float
    rate: float

    @property
    def pattern(self) -> np.ndarray:
        """The 0/1 matrix of trained routes."""
        return np.asarray(self.task.meta["pattern"])

    @property
    def generalises(self) -> bool:
        """Whether there are untrained routes, and theory expects them to work (E10-E12)."""
        return bool((self.pattern == 0).any()) and self.task.meta["spectral_gap"] < GAP

    @property
    def reference(self) -> bool:
        """Whether the reference values are for this setting of the decoupled network."""
        o = self.options
        return o.base == "hierarchy" and not o.whiten and o.domains == 7 and self.amplitude == 0.2


def make_plan(options: Options) -> Plan:
    """Load the base data, refuse what Eq. 13-15 do not cover, and settle scales and step."""
    base = _base(options)
    task = tasks.routing(
        options.domains,
        options.trained,
        base=(base.x, base.y),
        pattern=options.pattern,
        key=jax.random.key(options.seed),
        width=options.width,
    )
    if not task.meta["biregular"]:
        counts = task.meta["pattern"].sum(axis=0)
        raise OptionError(
            f"pattern {options.pattern!r} trains each output with {counts.min()} to "
            f"{counts.max()} inputs; Eq. 13-15 need as many trained inputs per output as outputs "
            "per input (E7): use --set pattern=cyclic or pattern=random_biregular"
        )
    try:
        reduction = reduce(task.graph, task.data)
    except InexactReductionError as error:
        raise OptionError(
            f"base {options.base!r} is not of Eq. 13's kind, Sigma^x and Sigma^yx have no common "
            f"frame; leave out --set whiten=false. {error}"
        ) from error
    except ValueError as error:
        raise OptionError(f"base {options.base!r}: {error}") from error
    modes = sim.find_modes(task, reduction)
    rank = np.linalg.matrix_rank(base.y.T @ base.x)
    if rank > options.width:
        raise OptionError(
            f"the base data have {rank} modes but the hidden layers {options.width} units: "
            f"use --set width={rank} or more"
        )
    amplitude = options.amplitude or _scaled(0.2, modes)
    rate = options.learning_rate or _one_digit(0.13 / sim.curvature(modes, amplitude))
    init_scale = options.init_scale or _scaled(0.2, modes)
    return Plan(task, reduction, modes, base, options, amplitude, init_scale, rate)


def _base(options: Options) -> Base:
    if options.base == "hierarchy":
        features = tasks.hierarchy_features()
        base = Base(np.eye(features.shape[1]), features.T, "hierarchy of N Fig. 4c")
    else:
        base = load_base(options.base)
    whiten = options.base != "hierarchy" if options.whiten is None else options.whiten
    return (base.whitened() if whiten else base).condensed()


def _scaled(value: float, modes: sim.Modes) -> float:
    """`value` in the same ratio to the largest final strength, (s/d)^(1/3), as on the hierarchy."""
    ratio = (float(np.max(modes.s / modes.d)) / _HIERARCHY_MAP) ** (1 / 3)
    return value if abs(ratio - 1) < 1e-9 else float(f"{value * ratio:.2g}")


def _one_digit(value: float) -> float:
    return float(f"{value:.1g}")
