"""Finding the gates of a gated network that a ReLU network imitates (H App. B, Algorithm 1).

The rows that are clustered are units at moments: which examples a unit is on for, weighted by what
the unit contributes to the output.
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gdln_jax._checks import Result, check_choice, check_integer, is_concrete
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._network import ReLUKind, ReLUNetwork, check_relu
from gdln_jax.relu._patterns import activation_patterns, on_threshold, unit_power

# k-means is started this often; on the patterns of trained networks all starts end within 1e-3.
_STARTS = 10
# A gate is decided where at least two thirds of its units agree.
_AGREED = 2 / 3
# Gates are called chance where units sit on their threshold for more than this share: between H's
# main task (0.17) and XoR with inputs +-1 (0.5 once its units have turned).
_MOST_CHANCE = 1 / 3


class Snapshots(Result, eqx.Module):
    """What finding and judging gates needs of ReLU networks: any leading axes, say (run, time).

    Attributes:
        on: (..., unit, example), which units are on.
        power: (..., unit), their shares in the energy of the output (`unit_power`), summing to 1.
        output: (..., example, y).
        near: (..., unit, example), which units sit on their threshold, within 5 % of their largest
            pre-activation, so that on or off says little; None: not known, taken as none.
        kind: number of hidden layers, whether there are biases, and the slope of the networks.
    """

    on: Bool[Array | np.ndarray, "*moment unit example"]
    power: Float[Array | np.ndarray, "*moment unit"]
    output: Float[Array | np.ndarray, "*moment example y"]
    near: Bool[Array | np.ndarray, "*moment unit example"] | None = None
    kind: ReLUKind = eqx.field(static=True, default=ReLUKind())

    def __repr__(self) -> str:
        *moment, unit, example = self.on.shape
        return f"Snapshots({moment} of {unit} units on {example} examples)"


def snapshot(
    model: ReLUNetwork, data: GatedData, *, layer: int | None = None, threshold: ArrayLike = 0.0
) -> Snapshots:
    """Take one snapshot of hidden layer `layer` (default: the last), also under `jit` and `vmap`.

    As `measure=` of `train` or `gradient_flow` it gives snapshots over time:
    `measure=lambda net: relu.snapshot(net, data)`; under `vmap` over networks, of many runs. At
    700 units and 24 examples a snapshot takes 40 kB, the weights are not kept. `threshold` as in
    `activation_patterns`: 0 is the gate itself, which is off at exactly 0; XoR needs a share, say
    0.1, because its units are at 0 on two of the four examples.
    """
    check_relu(model)
    layer = model.depth if layer is None else layer
    return Snapshots(
        activation_patterns(model, data, layer=layer, threshold=threshold),
        unit_power(model, data, layer=layer),
        model(data)[model.ends(data)[1]],
        on_threshold(model, data, layer=layer, threshold=threshold),
        model.kind,
    )


class GateModules(Result, eqx.Module):
    """Kinds of units, by what they are on for; made by `discover_gates`, strongest first.

    Attributes:
        centroids: (module, example), weighted share of the module's units that are on.
        gates: (module, example), 1 where the centroid exceeds 1/2, else 0.
        confidence: (module, example), |2 centroid - 1| times the share of the module that does not
            sit on its threshold: 1 if all units agree and are clear of it, 0 if undecided.
        shares: (module,) of the output's power, averaged over snapshots (`unit_power`).
        members: (..., module), units of each module in each snapshot; units that were dropped
            (never on) are in none.
        labels: (..., unit), each unit's module, -1 if dropped.
        explained: share of the variance of the gates, weighted as in the clustering, that lies
            between modules: 0 for one module, 1 if every unit is as its centroid.
        agreement: share of the output's power times examples that `gates` switch as the units do,
            where units do not sit on their threshold; 0 if all do everywhere.
        on_threshold: the share where they do, within 5 % of a unit's largest pre-activation. What
            gates say there is chance: 0.5 for XoR with inputs +-1 and snapshots at threshold 0.
        kind: of the networks, as in `Snapshots`.
    """

    centroids: Float[np.ndarray, "module example"]
    gates: Int[np.ndarray, "module example"]
    confidence: Float[np.ndarray, "module example"]
    shares: Float[np.ndarray, " module"]
    members: Int[np.ndarray, "*moment module"]
    labels: Int[np.ndarray, "*moment unit"]
    explained: float
    agreement: float
    on_threshold: float
    kind: ReLUKind = eqx.field(static=True, default=ReLUKind())

    @property
    def k(self) -> int:
        """Number of modules."""
        return len(self.gates)

    @property
    def undecided(self) -> float:
        """Share of the modules' power times examples where fewer than two thirds of units agree.

        There a small change of the units turns the gate.
        """
        split = np.maximum(self.centroids, 1 - self.centroids) < _AGREED
        power = np.maximum(self.shares, 0)
        return float(power @ split.mean(axis=1) / power.sum()) if power.any() else 1.0

    def by_group(self, groups: ArrayLike | Sequence[object]) -> Int[np.ndarray, "module group"]:
        """Return gates by majority: 1 where a module's centroid exceeds 1/2 on average.

        The average is over a group of examples. `groups`: (example,) group of each, say its
        context; columns are groups in sorted order.
        """
        groups = np.asarray(groups)
        if groups.shape != self.gates.shape[1:]:
            raise ValueError(
                f"groups has shape {groups.shape}; expected one per example, "
                f"{self.gates.shape[1:]}."
            )
        means = [self.centroids[:, groups == g].mean(axis=1) for g in np.unique(groups)]
        return (np.stack(means, axis=1) > 0.5).astype(int)

    def __repr__(self) -> str:
        facts = (
            f"explained {self.explained:.0%}, agreement {self.agreement:.0%}, on their threshold "
            f"{self.on_threshold:.0%}"
        )
        lines = [f"GateModules({self.k} modules, {facts}"]
        for gate, share, sure in zip(self.gates, self.shares, self.confidence, strict=True):
            shown = "".join(map(str, gate)) if len(gate) <= 60 else f"{gate.sum()} of {len(gate)}"
            lines.append(f"  {shown}  power {share:.0%}, confidence {sure.mean():.2f}")
        return "\n".join(lines) + ")"


def discover_gates(
    snapshots: Snapshots,
    *,
    k: int,
    weight: Literal["output_power"] | None = "output_power",
    drop_dead: bool = True,
    seed: int = 0,
) -> GateModules:
    r"""Cluster the activation patterns of all units in all snapshots into `k` kinds (H App. B).

    Args:
        snapshots: of one or many runs at one or many times (`snapshot`). Networks of one run need
            not have their units in one order: only which patterns occur counts.
        k: number of modules; `choose_k` finds it.
        weight: `"output_power"`: a unit counts as its share in the energy of the output at that
            moment (negative shares as 0). Every snapshot counts the same, however small its
            outputs, and a unit that splits into two that do its work together counts as before.
            `None`: every unit counts the same, as H has it.
        drop_dead: leave out units that are on for no example (of leaky networks none is dead).
        seed: of k-means++; ten starts.

    `weight=None, drop_dead=False` is H's algorithm. It finds the right four gates on H's own task
    in 9 or 10 of 12 runs; a module is lost to the dead units and to those that contribute nothing.
    The defaults find them in 12 of 12.

    k-means runs on the distinct patterns with summed weights: the same objective. Distinct
    patterns are in the order of their weights, so that permuted units or examples give permuted
    answers, and runs given twice change nothing. Cost O(distinct patterns x examples x k) per
    iteration. Moments at which the output is 0 have no power to share and do not count.

    Raises:
        ValueError: under `jit`, for snapshots that are not finite, or with fewer distinct patterns
            than `k`. Warns where units sit on their threshold for more than a third of the output's
            power times examples: gates are then made of chance.
    """
    found = find_gates(snapshots, k=k, weight=weight, drop_dead=drop_dead, seed=seed)
    if found.on_threshold > _MOST_CHANCE:
        warnings.warn(
            f"units sit on their threshold for {found.on_threshold:.0%} of the output's power "
            "times examples, so that their gates there are chance; take the snapshots with a "
            "threshold, relu.snapshot(net, data, threshold=0.1).",
            stacklevel=2,
        )
    return found


def find_gates(
    snapshots: Snapshots,
    *,
    k: int,
    weight: str | None = "output_power",
    drop_dead: bool = True,
    seed: int = 0,
) -> GateModules:
    """`discover_gates` without its warning, where outputs decide whether the gates are right."""
    k = check_integer(k, "k", minimum=1)
    seed = check_integer(seed, "seed", minimum=0)
    rows = gate_rows(snapshots, weight=weight, drop_dead=drop_dead)
    if rows.count < k:
        raise ValueError(
            f"k is {k}, but only {rows.count} different patterns occur; use a smaller k."
        )
    centroids = cluster(rows, k, seed)
    label = nearest(rows.patterns, centroids)
    moments = rows.index.shape[:-1]
    labels = np.where(rows.index >= 0, np.append(label, -1)[rows.index], -1)
    power = np.asarray(snapshots.power, float)
    counted = max(int(np.sum(np.any(power != 0, axis=-1))), 1)
    shares = np.stack([np.sum(power * (labels == m)) / counted for m in range(k)])
    order = np.argsort(-shares, kind="stable")
    rank = np.argsort(order)
    centroids, shares, label = centroids[order], shares[order], rank[label]
    labels = np.where(labels >= 0, np.append(rank, -1)[labels], -1)
    members = np.stack([np.sum(labels == m, axis=-1) for m in range(k)], axis=-1)
    gates = (centroids > 0.5).astype(int)
    w = rows.weights / rows.weights.sum()
    spread = w @ (rows.patterns - w @ rows.patterns) ** 2
    left = w @ (rows.patterns - centroids[label]) ** 2
    clear, agreement, chance = _at_stake(rows, label, gates)
    return GateModules(
        centroids,
        gates,
        np.abs(2 * centroids - 1) * clear,
        shares,
        members.reshape(*moments, k),
        labels,
        float(1 - left.sum() / spread.sum()) if spread.sum() > 0 else 1.0,
        agreement,
        chance,
        snapshots.kind,
    )


class GateRows(eqx.Module):
    """Distinct patterns (row, example), heaviest first; `index` (..., unit) is -1 if dropped.

    `near` is the share of a row's weight that sits on its threshold. Rows of weight 0 come last:
    they take no part in the clustering.
    """

    patterns: Float[np.ndarray, "row example"]
    weights: Float[np.ndarray, " row"]
    power: Float[np.ndarray, " row"]
    near: Float[np.ndarray, "row example"]
    index: Int[np.ndarray, "*moment unit"]

    @property
    def count(self) -> int:
        """Number of rows with a weight."""
        return int(np.sum(self.weights > 0))


def gate_rows(snapshots: Snapshots, *, weight: str | None, drop_dead: bool) -> GateRows:
    """Gather the patterns of all snapshots, after checks."""
    if not isinstance(snapshots, Snapshots):
        raise ValueError(
            f"snapshots is {type(snapshots).__name__}; pass what relu.snapshot(model, data) "
            "returns, e.g. the .measured of train(..., measure=...)."
        )
    if not is_concrete(snapshots):
        raise ValueError("clustering looks at values; call it outside of jit, vmap and grad.")
    if weight is not None:
        check_choice(weight, ("output_power",), "weight")
    on, power = np.asarray(snapshots.on), np.asarray(snapshots.power, float)
    if on.shape[:-1] != power.shape:
        raise ValueError(
            f"snapshots.on has shape {on.shape} and power {power.shape}; expected (..., unit, "
            "example) and (..., unit)."
        )
    if not np.all(np.isfinite(power)):
        raise ValueError(
            "a snapshot's power is not finite: that network has diverged; leave the snapshot out."
        )
    flat = np.packbits(on.reshape(-1, on.shape[-1]), axis=1)
    view = flat.view(np.dtype((np.void, flat.shape[1]))).ravel()
    _, first, index = np.unique(view, return_index=True, return_inverse=True)
    index = index.ravel()
    patterns = on.reshape(-1, on.shape[-1])[first].astype(float)
    # Shares may be negative for a unit that works against the rest.
    each = np.maximum(power, 0).ravel()
    positive = np.bincount(index, each, minlength=len(first))
    each = each if weight else np.ones(len(each))
    weights = np.bincount(index, each, minlength=len(first))
    near = np.zeros(patterns.shape)
    if snapshots.near is not None:
        flat = np.asarray(snapshots.near).reshape(-1, on.shape[-1])
        sums = [np.bincount(index, each * column, minlength=len(first)) for column in flat.T]
        near = np.stack(sums, axis=1) / np.where(weights > 0, weights, 1)[:, None]
    dead = ~patterns.any(axis=1) & (drop_dead and snapshots.kind.slope == 0)
    kept = ~dead
    if not np.any(weights[kept] > 0):
        raise ValueError(
            "no unit is on for any example in these snapshots, or none sends anything on: the "
            "outputs are 0."
        )
    order = np.flatnonzero(kept)[np.argsort(-weights[kept], kind="stable")]
    place = np.full(len(first), -1)
    place[order] = np.arange(len(order))
    return GateRows(
        patterns[order],
        weights[order] / weights[order].sum(),
        positive[order],
        near[order],
        place[index].reshape(power.shape),
    )


def _at_stake(
    rows: GateRows, label: np.ndarray, gates: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Return each module's share clear of its threshold, the agreement there, and the rest.

    Where a unit sits on its threshold it sends nothing on, whatever the gate says.
    """
    mass = np.where(label == np.arange(len(gates))[:, None], rows.weights, 0)
    clear = 1 - mass @ rows.near / np.maximum(mass.sum(axis=1, keepdims=True), 1e-300)
    power = rows.power if rows.power.any() else rows.weights
    stake = power[:, None] * (1 - rows.near)
    agreed = np.sum(stake * (rows.patterns == gates[label]))
    return (
        clear,
        float(agreed / stake.sum()) if stake.any() else 0.0,
        float(1 - stake.sum() / (power.sum() * gates.shape[1])),
    )


def cluster(rows: GateRows, k: int, seed: int) -> np.ndarray:
    """Return centroids (k, example) of the rows that have a weight."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  as late as scikit-learn

    count = rows.count
    # The problems are small: threads only wait for each other (10 times slower on a busy machine),
    # and one thread adds up in one order.
    with threadpool_limits(1):
        starts: Any = _STARTS  # the stub knows "auto" only
        found = KMeans(k, n_init=starts, random_state=seed).fit(
            rows.patterns[:count], sample_weight=rows.weights[:count] * count
        )
    return np.clip(found.cluster_centers_, 0, 1)


def nearest(patterns: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the number of the closest centroid of each pattern."""
    distance = np.sum(centroids**2, axis=1) - 2 * patterns @ centroids.T
    return np.argmin(distance, axis=1)


def mean_square(outputs: np.ndarray) -> float:
    """Return the mean square of ReLU networks' outputs, of which gaps are shares."""
    energy = float(np.mean(outputs**2))
    if energy == 0:
        raise ValueError("the ReLU networks' outputs are 0 at all times: nothing to imitate.")
    return energy


def output_of(measured: object, name: str) -> Array | np.ndarray:
    """Return the outputs among what a run measured: `Snapshots`, a mapping, or the array."""
    if isinstance(measured, Snapshots):
        return measured.output
    if isinstance(measured, dict) and "output" in measured:
        return measured["output"]
    if isinstance(measured, jax.Array | np.ndarray) and measured.ndim >= 3:
        return measured
    raise ValueError(
        f"{name} has no outputs: train with measure=lambda net: relu.snapshot(net, data), or for "
        'a gated network measure=lambda net: net(data)["y"] with your output node.'
    )
