"""How many kinds of units: the smallest gated network that imitates the ReLU network (H Fig. 9).

H leaves the distance open. It is the mean squared difference of OUTPUTS over the whole course of
learning; losses alone cannot tell networks that err in different places.
"""

from collections.abc import Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from gdln_jax import Trajectory
from gdln_jax._checks import Result, check_integer, check_positive
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.gated import GatedData
from gdln_jax._train import save_points, train
from gdln_jax.relu._gates import (
    GateModules,
    Snapshots,
    cluster,
    find_gates,
    gate_rows,
    mean_square,
    nearest,
)
from gdln_jax.relu._gates_network import (
    check_one_layer,
    ends,
    gate_values,
    gated_graph,
    mean_units,
    start_at,
    with_pathways,
)

# A k is good enough if what a larger one would gain is below this share of what the whole range
# gains. On H's tasks the last module that is needed gains 6 % or more, and those
# beyond it less than 0.5 %: any value between would do.
_WORTH = 0.02
# Records of gated networks, beside runs that were recorded at unequal intervals.
_MOST_RECORDS = 10_000
# Rows drawn for comparing two clusterings.
_DRAWN = 4000


class GateChoice(Result, eqx.Module):
    """Which number of modules imitates the ReLU networks; made by `choose_k`.

    Attributes:
        ks: (k,), the numbers tried.
        gap: (k, seed), mean squared difference of outputs over examples, features and times, as a
            share of the ReLU networks' mean square output.
        best: the k with the smallest mean gap.
        k: the chosen one, or None: no small gated network imitates this one.
        reason: why, as a sentence.
        limit: the largest gap that counts as imitation.
        spread: the same gap between two ReLU networks, the yardstick; NaN with one seed.
        stability: (k,), adjusted Rand index between clusterings of two random halves of the units:
            1 if they agree on which units belong together, 0 at chance.
        modules: one `GateModules` for each k.
        outputs: (k, seed, time, example, y), of the gated networks.
    """

    ks: Int[np.ndarray, " k"]
    gap: Float[np.ndarray, "k seed"]
    best: int
    k: int | None
    reason: str
    limit: float
    spread: float
    stability: Float[np.ndarray, " k"]
    modules: tuple[GateModules, ...]
    outputs: Float[np.ndarray, "k seed time example y"]

    @property
    def index(self) -> int:
        """Position in `ks` of the chosen number, or of the best one if none was chosen."""
        return list(self.ks).index(self.best if self.k is None else self.k)

    @property
    def chosen(self) -> GateModules:
        """The modules of the chosen k."""
        if self.k is None:
            raise ValueError(f"{self.reason}; there are no modules to choose.")
        return self.modules[self.index]

    def __repr__(self) -> str:
        gaps = ", ".join(f"{k}: {g:.3g}" for k, g in zip(self.ks, self.gap.mean(1), strict=True))
        return f"GateChoice(k = {self.k}: {self.reason}; gap of outputs at k = {gaps})"


def choose_k(
    runs: Trajectory,
    data: GatedData,
    *,
    learning_rate: float | int,
    std: float | int,
    key: PRNGKeyArray,
    ks: Sequence[int] = (1, 2, 3, 4, 5, 6),
    width: int = 48,
    limit: float = 0.05,
    seed: int = 0,
    seeds: int = 3,
) -> GateChoice:
    r"""Find the number of modules without looking at the gates.

    For every k the gates are found in all runs together, the gated network is built from them,
    started from the units' numbers (`build_gated`, nothing fitted) and trained by gradient
    descent exactly as the ReLU networks were, once for each of them. Too few modules cannot hold
    the solution. Too many split the data among pathways that learn less from each other, so the
    gap has a minimum.

    The rule: none, if the smallest mean gap exceeds `limit`. Else the smallest k whose mean gap is
    above the smallest by at most one standard error (of the difference, paired over seeds) or by
    2 % of the range of gaps, whichever is larger: with few or very similar seeds the standard
    error alone would buy a further module for a gain that no one can see.

    Args:
        runs: ReLU networks trained with plain gradient descent on the mean loss, one or stacked
            over seeds, `measure=lambda net: relu.snapshot(net, data)`; or `History.run(data)`.
        data: what they were trained on.
        learning_rate: of the ReLU networks.
        std: of the ReLU networks' initial weights.
        key: for initial weights.
        seed: for the clustering.
        width: units that stand for each pathway; its start is that of its number of ReLU units.
        ks: numbers of modules; those beyond the number of different patterns are left out.
        limit: largest gap, as a share of the output's mean square, that counts as imitation.
        seeds: gated networks that are trained for each k beside one run; of stacked runs each has
            one.

    Cost: all k and seeds are one program of max(k) `width` units each.

    Biases and a leaky slope of the ReLU networks are those of the gated ones too (`build_gated`).

    Raises:
        ValueError: for runs without snapshots, or with so many steps between unequal ones that the
            records of gated networks would not fit, numbers k that are not increasing, outputs that
            are 0 throughout, or ReLU networks with several hidden layers.
    """
    ks = check_numbers(ks)
    if not ks or sorted(set(ks)) != ks:
        raise ValueError(f"ks is {ks}; give increasing numbers of modules.")
    check_positive(learning_rate, "learning_rate")
    check_positive(std, "std")
    check_integer(width, "width", minimum=1)
    check_integer(seeds, "seeds", minimum=1)
    every = stacked(runs)
    given: Snapshots = runs.measured
    runs, snapshots = every, every.measured
    possible = gate_rows(snapshots, weight="output_power", drop_dead=True).count
    ks = [k for k in ks if k <= possible]
    if not ks:
        raise ValueError(f"only {possible} different patterns occur; ks must start below that.")
    modules = tuple(find_gates(given, k=k, seed=seed) for k in ks)
    keys = jax.random.split(key, len(runs.losses) if len(runs.losses) > 1 else seeds)
    outputs = gated_outputs(runs, data, modules, learning_rate, std, keys, width)
    wanted = np.asarray(snapshots.output, float)
    energy = mean_square(wanted)
    gap = np.stack([np.mean((o - wanted) ** 2, axis=(1, 2, 3)) for o in outputs]) / energy
    pairs = [(i, j) for i in range(len(wanted)) for j in range(i)]
    spread = [np.mean((wanted[i] - wanted[j]) ** 2) / energy for i, j in pairs]
    k, reason = smallest_good(ks, gap, limit)
    return GateChoice(
        np.array(ks),
        gap,
        ks[_least(gap)],
        k,
        reason,
        float(limit),
        float(np.mean(spread)) if spread else float("nan"),
        np.array([_stability(snapshots, k, seed) for k in ks]),
        modules,
        outputs,
    )


def check_numbers(ks: object) -> list[int]:
    """Return the numbers of modules to try, or raise `ValueError` unless they are a sequence."""
    if not isinstance(ks, Iterable):
        raise ValueError(f"ks is {ks!r}; pass the numbers of modules to try, such as ks=(1, 2, 3).")
    return [check_integer(k, "ks", minimum=1) for k in ks]


def stacked(runs: Trajectory) -> Trajectory:
    """Return `runs` with a leading axis of seeds, one if there is one run, after checks."""
    snapshots = getattr(runs, "measured", None)
    if not isinstance(snapshots, Snapshots) or snapshots.on.ndim not in (3, 4):
        raise ValueError(
            f"runs is a {type(runs).__name__}; it must be a Trajectory of one run, or of runs that "
            "are stacked over seeds, measured with relu.snapshot: train(net, data, measure=lambda "
            "net: relu.snapshot(net, data)), mapped over networks by vmap."
        )
    if snapshots.on.ndim == 4:
        return runs
    return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, runs)


def smallest_good(ks: Sequence[int], gap: np.ndarray, limit: float) -> tuple[int | None, str]:
    """Apply the rule of `choose_k`: return the number, or None, and why. `gap` is (k, seed)."""
    if not np.all(np.isfinite(gap)):
        raise ValueError("a gated network diverged; use a smaller learning_rate for all networks.")
    mean, best = gap.mean(axis=1), _least(gap)
    if mean[best] > limit:
        return None, (
            f"no small gated network imitates this one: with up to {ks[-1]} modules the outputs "
            f"are {mean[best]:.1%} apart, more than {limit:.1%}"
        )
    seeds = gap.shape[1]
    above = gap - gap[best]
    error = above.std(axis=1, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.zeros(len(gap))
    allowed = np.maximum(error, _WORTH * (mean.max() - mean[best]))
    first = int(np.argmax(above.mean(axis=1) <= allowed))
    return ks[first], (
        f"smallest number within one standard error, or {_WORTH:.0%} of the range, of the best, "
        f"{ks[best]}"
    )


def _least(gap: np.ndarray) -> int:
    return int(np.argmin(np.nan_to_num(gap.mean(axis=1), nan=np.inf)))


def gated_outputs(
    runs: Trajectory,
    data: GatedData,
    modules: tuple[GateModules, ...],
    rate: float,
    std: float,
    keys: Key[Array, " seed"],
    width: int,
    factors: np.ndarray | None = None,
) -> np.ndarray:
    """Return outputs (k, seed, time, example, y) of gated networks trained as stacked runs were.

    Pathways start as the units of their module do, times `factors` (module,) where given.
    """
    snapshots: Snapshots = runs.measured
    bias = snapshots.kind.bias
    check_one_layer(snapshots.kind)
    steps, every, recorded = _steps_of(runs)
    dtype = snapshots.output.dtype
    # One shape, one program: where k is smaller, the pathways that are left over are never on.
    shape = len(modules), max(found.k for found in modules)
    gates, scales = np.zeros((*shape, data.num_examples)), np.ones(shape)
    for i, found in enumerate(modules):
        gates[i, : found.k] = gate_values(found)
        start = np.sqrt(np.maximum(mean_units(found), 1) / width)
        scales[i, : found.k] = start if factors is None else start * factors
    data = jax.tree.map(lambda a: a.astype(dtype), data)
    g, c, r, s = (jnp.asarray(a, dtype) for a in (gates, scales, rate, std))
    outputs = _program(data, g, c, r, s, keys, width, steps, every, bias)
    return np.asarray(outputs[:, :, recorded], float)


def _steps_of(runs: Trajectory) -> tuple[int, int, np.ndarray]:
    """Return `steps` and `save_every` of `train`, and which of its records are those of `runs`."""
    ts = np.asarray(runs.ts)[0].astype(int)
    steps, every = int(ts[-1]), int(np.gcd.reduce(ts))
    if len(ts) > 1 and np.array_equal(ts, save_points(steps, max(int(ts[1] - ts[0]), 1))):
        return steps, int(ts[1] - ts[0]), np.arange(len(ts))
    if not steps or steps // every > _MOST_RECORDS:
        raise ValueError(
            f"the runs were recorded at {len(ts)} steps up to {steps}, which all lie on a grid of "
            f"{every} only, more than {_MOST_RECORDS} points; leave out those that do not lie on "
            "a coarser one."
        )
    return steps, every, ts // every


@eqx.filter_jit
def _program(
    data: GatedData,
    gates: Array,
    scales: Array,
    rate: Array,
    std: Array,
    keys: Key[Array, " seed"],
    width: int,
    steps: int,
    every: int,
    bias: bool,
) -> Array:
    names = [f"m{m + 1}" for m in range(gates.shape[1])]
    graph, (_, output) = gated_graph(data, names, [width] * len(names), bias), ends(data)

    def run(gate: Array, scale: Array, key: PRNGKeyArray) -> Array:
        gated = with_pathways(data, dict(zip(names, gate, strict=True)), bias)
        net = start_at(graph, ends(data), dict(zip(names, scale, strict=True)), std, key)
        outputs = train(
            jax.tree.map(lambda w: w.astype(std.dtype), net),
            gated,
            optimizer=optax.sgd(rate),
            steps=steps,
            save_every=every,
            measure=lambda net: net(gated)[output],
            keep_models=False,
        ).measured
        assert outputs is not None
        return outputs

    return jax.vmap(jax.vmap(run, (None, None, 0)), (0, 0, None))(gates, scales, keys)


def _stability(snapshots: Snapshots, k: int, seed: int) -> float:
    """Return the adjusted Rand index of clusterings of two halves of the units."""
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(seed)
    order = rng.permutation(snapshots.on.shape[-2])
    halves = []
    for units in np.array_split(order, 2):
        part = eqx.tree_at(
            lambda s: (s.on, s.power, s.near),
            snapshots,
            (snapshots.on[..., units, :], snapshots.power[..., units], None),
            is_leaf=lambda leaf: leaf is None,
        )
        halves.append(gate_rows(part, weight="output_power", drop_dead=True))
    if min(rows.count for rows in halves) < k:
        return float("nan")
    every = gate_rows(snapshots, weight="output_power", drop_dead=True)
    drawn = every.patterns[rng.choice(len(every.patterns), _DRAWN, p=every.weights)]
    one, other = (nearest(drawn, cluster(rows, k, seed)) for rows in halves)
    return float(adjusted_rand_score(one, other))
