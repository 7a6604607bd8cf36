"""From the weights of a trained network to answers: which gates, how many, when, rich or lazy.

Each question is asked of what is there. What had to be assumed is listed, and so is what could not
be answered, with the reason.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gdln_jax import SolveError, Trajectory, measures
from gdln_jax._checks import check_integer, check_positive
from gdln_jax._checks.types import ArrayLike, Rows
from gdln_jax._data.boundary import check_gated_data
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._change_points import change_points, shared_power
from gdln_jax.relu._clock import Clock, fit_clock
from gdln_jax.relu._drops import Drops, match_drops
from gdln_jax.relu._explanation import Explanation
from gdln_jax.relu._expressible import Expressible, expressible
from gdln_jax.relu._gates import GateModules, Snapshots, find_gates
from gdln_jax.relu._gates_choice import GateChoice, check_numbers, choose_k
from gdln_jax.relu._gates_null import null_gates
from gdln_jax.relu._history import History, history
from gdln_jax.relu._imitation import ImitationGap, imitation_gap
from gdln_jax.relu._network import ReLUNetwork, check_plain
from gdln_jax.relu._prediction import GatePrediction, predict_gates

# Outputs times examples of which the tangent kernel is compared; four passes each.
_KERNEL = 2000
# Gates of which more is undecided are chance. XNOR on 0/1 inputs (8 seeds, two codes of the
# targets): at one gate 0.25 to 0.5, at two at most 0.11.
_UNDECIDED = 0.2
# Modes of the targets that are followed.
_MODES = 5
Answer = TypeVar("Answer")


def explain(
    source: object,
    data: GatedData,
    *,
    learning_rate: float | int | None = None,
    std: float | int | None = None,
    ks: Sequence[int] = (1, 2, 3, 4, 5, 6),
    seeds: int = 3,
    width: int = 48,
    threshold: float | int = 0.0,
    groups: Rows | None = None,
    test: GatedData | None = None,
    seed: int = 0,
) -> Explanation:
    """Answer what can be answered about a trained network, or its training, from weights and data.

    Which gates its units have, how many kinds it takes to imitate it and how well, when they
    changed, which modes were learned, rich or lazy, whether it learned as gradient flow does, and
    whether its drops came when they are predicted. With one checkpoint the questions about the
    course of learning stay open.

    Args:
        source: a `History`, or what `history` reads.
        data: what the network was trained on, one input and one output node.
        learning_rate: flow time per step, of gradient descent on `mse` with momentum beta that of
            the optimiser over 1 - beta. Default: from the weights (`fit_clock`), if they moved as
            under gradient descent.
        std: of the initial weights. Default: that of the first checkpoint, if it is of step 0.
        ks: numbers of modules to try.
        seeds: gated networks for each number; the spread over them is reported.
        width: units that stand for each pathway.
        threshold: as in `activation_patterns`, for gates and their changes.
        groups: (example,) group of each example, say its route: the error of each over time.
        test: examples that were not trained: their relative error over time. With `groups`, of
            equal length, the groups are those of `test`.
        seed: of clusterings, shuffles and initial weights.

    Raises:
        ValueError: data that do not fit the network, `ks` that is no sequence of whole numbers, and
            as `history`.
    """
    past = _checked(source, data)
    check_integer(seeds, "seeds", minimum=1)
    numbers = tuple(check_numbers(ks))
    for name, value in (("learning_rate", learning_rate), ("std", std)):
        if value is not None:
            check_positive(value, name)
    book = _Book(past.notes)
    run = past.run(data, threshold=threshold)
    clock = book.ask("did it learn as gradient flow does", lambda: fit_clock(past, data))
    rate = _rate(book, clock, learning_rate)
    scale = _scale(book, past, std)
    choice, gap = _imitated(
        book, run, data, rate, scale, ks=numbers, seeds=seeds, width=width, seed=seed
    )
    reach = book.ask(
        "how many gates compute these outputs",
        lambda: expressible(run.measured, data, ks=numbers, seed=seed),
    )
    gates = _gates(run.measured, choice, reach, seed)
    prediction, drops = _predicted(book, past, run, data, scale)
    inputs = (past, data) if test is None else (past, test)
    return Explanation(
        history=past,
        data=data,
        losses=np.asarray(run.losses, float),
        gates=gates,
        null=null_gates(run.measured, k=gates.k, seed=seed),
        shares=_shares_over_time(run.measured, gates),
        changes=_changes(book, past, run.measured),
        choice=choice,
        gap=gap,
        reach=reach[0] if reach else None,
        clock=clock,
        rate=rate,
        std=scale,
        prediction=prediction,
        drops=drops,
        richness=_richness(book, past, run, data),
        **_modes(run.measured.output, data),
        **_similarities(past, data),
        errors=_errors(*inputs, groups),
        groups=_names(groups),
        assumed=tuple(book.assumed),
        unanswered=tuple(book.unanswered),
    )


def _checked(source: object, data: object) -> History:
    """Return the history, of a network that fits the data."""
    if isinstance(source, GatedData):
        raise ValueError(
            f"source is GatedData, and data is a {type(data).__name__}: the checkpoints come "
            "first, explain(source, data)."
        )
    past = source if isinstance(source, History) else history(source)
    past.at(-1).ends(check_gated_data(data))
    return past


class _Book:
    """What was assumed, and which questions stay open."""

    def __init__(self, notes: Iterable[str]):
        self.assumed = list(notes)
        self.unanswered: list[tuple[str, str]] = []

    def ask(self, question: str, answer: Callable[[], Answer]) -> Answer | None:
        """Answer, or note the reason why there is no answer."""
        try:
            return answer()
        except (ValueError, SolveError) as reason:
            self.leave(question, str(reason))
            return None

    def leave(self, question: str, reason: str) -> None:
        """Note a question that stays open."""
        self.unanswered.append((question, reason))


def _rate(book: _Book, clock: Clock | None, given: float | int | None) -> float | None:
    if given is not None:
        book.assumed.append(f"flow time per step {given:g}, as given")
        return float(given)
    if clock is None:
        return None
    if clock.reason:
        book.leave("how much time of gradient flow is a step", clock.reason)
        return None
    book.assumed.append(
        f"gradient descent on the mean squared error with {clock.rate:.4g} units of time per step, "
        f"as the weights moved (cosine with its moves {clock.cosine:.3f}, conserved quantities "
        f"drifted by {clock.conserved:.1%})"
    )
    return clock.rate


def _scale(book: _Book, past: History, given: float | int | None) -> float | None:
    """The std of the initial weights that a gated network starts with."""
    if given is not None:
        book.assumed.append(f"initial weights of std {given:g}, as given")
        return float(given)
    if past.steps[0] != 0 or len(past) < 2:
        first = f"the first checkpoint is of step {past.steps[0]}"
        reason = first if len(past) > 1 else "there is one checkpoint"
        book.leave(
            "from which weights did it start",
            f"{reason}; pass std, or the checkpoint of step 0 beside later ones",
        )
        return None
    first = past.at(0)
    sizes = [float(jnp.sqrt(jnp.mean(w**2))) for w in first.weights]
    # A mode of a pathway of n units starts at n (std_1^2 + std_2^2)/4.
    std = float(np.sqrt(np.mean(np.square(sizes))))
    shown = ", ".join(f"{size:.3g}" for size in sizes)
    biases = ""
    if first.biases is not None and any(np.any(np.asarray(b)) for b in first.biases):
        biases = "; the biases of the gated networks start at 0, those of this network do not"
    book.assumed.append(
        f"initial weights of std {std:.3g} (root mean square of each layer at step 0: "
        f"{shown}){biases}"
    )
    return std


def _imitated(
    book: _Book,
    run: Trajectory,
    data: GatedData,
    rate: float | None,
    std: float | None,
    *,
    ks: tuple[int, ...],
    seeds: int,
    width: int,
    seed: int,
) -> tuple[GateChoice | None, ImitationGap | None]:
    question = "how many gates imitate its course of learning"
    if rate is None or std is None:
        missing = " and ".join(
            [*(["time per step"] * (rate is None)), *(["initial scale"] * (std is None))]
        )
        book.leave(question, f"not known: the {missing} of its training")
        return None, None
    choice = book.ask(
        question,
        lambda: choose_k(
            run,
            data,
            learning_rate=rate,
            std=std,
            key=jax.random.key(seed),
            ks=ks,
            width=width,
            seed=seed,
            seeds=seeds,
        ),
    )
    if choice is None:
        return None, None
    outputs, (y,) = choice.outputs[_number(choice)], data.targets.values()
    error = np.sum((np.asarray(y, float) - outputs) ** 2, axis=-1) / 2
    losses = jnp.asarray(error @ np.asarray(data.weights, float))
    repeated = jax.tree.map(lambda a: jnp.stack([jnp.asarray(a)] * seeds), _bare(run))
    gated = eqx.tree_at(lambda r: (r.losses, r.measured), repeated, (losses, jnp.asarray(outputs)))
    return choice, imitation_gap(repeated, gated)


def _number(choice: GateChoice) -> int:
    """Position of the number to report: the smallest that imitates with gates that are decided.

    The chosen one where no larger one has them, too.
    """
    gaps = choice.gap.mean(axis=1)
    later = [
        i
        for i, found in enumerate(choice.modules)
        if i >= choice.index and gaps[i] <= choice.limit and found.undecided <= _UNDECIDED
    ]
    return later[0] if later and choice.k is not None else choice.index


def _bare(run: Trajectory) -> Trajectory:
    """A run without its models, with its outputs as what was measured."""
    return Trajectory(run.ts, run.losses, run.status, {}, None, None, run.measured.output)


def _gates(
    snapshots: Snapshots,
    choice: GateChoice | None,
    reach: tuple[Expressible, tuple[GateModules, ...]] | None,
    seed: int,
) -> GateModules:
    """The modules of the number that imitates, or computes, or comes nearest."""
    if choice is not None:
        return choice.modules[_number(choice)]
    if reach is not None:
        k = reach[0].k or int(reach[0].ks[int(np.argmin(reach[0].gap))])
        return reach[1][list(reach[0].ks).index(k)]
    return find_gates(snapshots, k=1, seed=seed)


def _shares_over_time(snapshots: Snapshots, gates: GateModules) -> Float[np.ndarray, "time module"]:
    power = np.asarray(snapshots.power, float)
    return np.stack([np.sum(power * (gates.labels == m), axis=-1) for m in range(gates.k)], axis=-1)


def _changes(book: _Book, past: History, snapshots: Snapshots) -> Float[np.ndarray, " change"]:
    """Change points of what units share.

    A unit that sits on its threshold counts as half on. Gradient descent keeps such units there
    from both sides, so that step size and rounding decide on which side a checkpoint has them.
    """
    if len(past) < 3:
        book.leave("when did the gates change", f"there are {len(past)} checkpoints; 3 are needed")
        return np.zeros(0)
    assert snapshots.near is not None
    on = jnp.where(snapshots.near, 0.5, snapshots.on)
    signal = np.asarray(jax.vmap(shared_power)(jnp.asarray(snapshots.power), on))
    # A power sums over units and examples, a signal over units once more.
    terms = 2 * on.shape[-2] + on.shape[-1]
    if np.ptp(signal, axis=0).max() <= terms * np.finfo(signal.dtype).eps * np.abs(signal).max():
        return np.zeros(0)
    return change_points(past.steps, signal)


def _predicted(
    book: _Book, past: History, run: Trajectory, data: GatedData, std: float | None
) -> tuple[GatePrediction | None, Drops | None]:
    question = "did its drops come when they are predicted"
    if std is None or std >= 1 or len(past) < 2:
        book.leave(question, "predictions need a small initial scale and the course of the loss")
        return None, None
    units = past.at(0).weights[0].shape[0]
    found: list[GatePrediction] = []

    def matched() -> Drops:
        check_plain(past.network)
        prediction = predict_gates(data, std=std, units=units, stages=3)
        drops = match_drops(prediction, run)
        found.append(prediction)
        return drops

    drops = book.ask(question, matched)
    if drops is not None and drops.reason:
        book.leave("what is the product of time per step and ln(1/std)", drops.reason)
    return (found[0] if found else None), drops


def _richness(
    book: _Book, past: History, run: Trajectory, data: GatedData
) -> measures.Richness | None:
    question = "was it rich or lazy"
    if len(past) < 2 or past.steps[0] != 0:
        book.leave(question, "the tangent kernel at the start is needed: the checkpoint of step 0")
        return None
    (y,) = data.targets.values()
    if y.size > _KERNEL:
        kept = np.arange(max(_KERNEL // y.shape[1], 1))
        book.assumed.append(f"rich or lazy: the tangent kernel of the first {len(kept)} examples")
        data = data.take(kept)
    return measures.richness(run, data)


def _modes(outputs: Array, data: GatedData) -> dict[str, np.ndarray]:
    """Singular modes of the targets over examples, and how much of each the outputs have."""
    (y,) = data.targets.values()
    root = np.sqrt(np.asarray(data.weights, float))[:, None]
    left, sizes, right = np.linalg.svd(root * np.asarray(y, float), full_matrices=False)
    kept = np.flatnonzero(sizes > 1e-9 * max(sizes[0], 1e-300))[:_MODES]
    learned = np.einsum(
        "nm,tny,my->tm", left[:, kept], root * np.asarray(outputs, float), right[kept]
    )
    return {"mode_sizes": sizes[kept], "modes": learned / sizes[kept]}


def _similarities(past: History, data: GatedData) -> dict[str, np.ndarray]:
    """Hidden similarity of examples at both ends, and its alignment with the targets' over time."""
    (y,) = data.targets.values()
    x, _ = past.at(0).ends(data)

    @jax.jit
    def hidden(net: ReLUNetwork) -> Array:
        z = net.pre_activations(x)[-2]
        h = jnp.where(z > 0, z, net.slope * z)
        return h @ h.T

    alignment = [
        float(measures.kernel_alignment(hidden(past.at(i)), y @ y.T)) for i in range(len(past))
    ]
    ends = [np.asarray(hidden(past.at(i))) for i in (0, -1)]
    return {"similarity": np.stack(ends), "alignment": np.array(alignment)}


def _errors(
    past: History, data: GatedData, groups: ArrayLike | Sequence[object] | None
) -> Float[np.ndarray, "time group"]:
    """Relative error over time, of each group if there are some."""
    numbers = np.zeros(data.num_examples, int)
    if groups is not None:
        labels = np.asarray(groups)
        if labels.shape != (data.num_examples,):
            raise ValueError(
                f"groups has shape {labels.shape}; expected one for each of {data.num_examples} "
                "examples."
            )
        numbers = np.unique(labels, return_inverse=True)[1]
    count = int(numbers.max()) + 1
    return np.asarray(
        jax.vmap(lambda net: measures.error_by_group(net, data, numbers, count))(past.network)
    )


def _names(groups: ArrayLike | Sequence[object] | None) -> tuple[str, ...]:
    return () if groups is None else tuple(map(str, np.unique(np.asarray(groups))))
