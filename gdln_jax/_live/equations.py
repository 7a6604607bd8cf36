"""A quotient's equations as plain numbers: its loss is a polynomial in the strengths of classes.

With one unknown x per class and mode, A_i a product of unknowns along the paths of one kind in one
mode, the loss is l = l0 - S.A + A.D.A/2 (theory#reduction). S and D are the derivatives of the
reduced loss in the path products, gates and overlaps included, found by sending polynomials
through the merged network. Host code in NumPy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gdln_jax._reduction.quotient import Quotient

MOST_UNKNOWNS, MOST_TERMS = 80, 240
# Relative to the largest: what rounding leaves of a coefficient that is 0.
_NOISE = 1e-13

Monomial = tuple[int, ...]  # the classes along a path, in order, repeated where they repeat
_Polynomial = dict[Monomial, np.ndarray]


@dataclass(frozen=True)
class Equations:
    """The reduced equations of one network.

    - `classes`: the edges of each class; `rates`: 1/|class|.
    - `x0`: (unknown,) start; `of`: (unknown,) pairs (class, mode).
    - `terms`: per term its monomial, a number among `pathways`, and its mode.
    - `S`, `D`: (term,), (term, term); `parts`: what l0 is made of, (mode,) and then the rest;
      where modes meet in the outputs l0 has no parts by mode, and `parts` is (1,) and the rest.
    """

    classes: tuple[tuple[str, ...], ...]
    rates: np.ndarray
    x0: np.ndarray
    of: tuple[tuple[int, int], ...]
    pathways: tuple[Monomial, ...]
    terms: tuple[tuple[int, int], ...]
    S: np.ndarray
    D: np.ndarray
    parts: np.ndarray

    @property
    def modes(self) -> int:
        """Number of modes."""
        return max((mode for _, mode in self.of), default=-1) + 1

    @property
    def overlap(self) -> bool:
        """Whether pathways see one another's outputs."""
        apart = np.array([pathway for pathway, _ in self.terms])
        return bool(np.any(self.D[apart[:, None] != apart]))


def equations(quotient: Quotient) -> Equations:
    """Return the equations of a quotient.

    Raises:
        ValueError: more unknowns or products than a page can integrate while one drags.
    """
    parts, S, D, found = _expanded(quotient)
    kept = np.flatnonzero(np.abs(S) + np.abs(D).max(axis=1, initial=0.0) > 0)
    S, D, found = S[kept], D[np.ix_(kept, kept)], [found[k] for k in kept]
    of = sorted({(label, mode) for path, mode in found for label in path})
    if len(of) > MOST_UNKNOWNS:
        raise ValueError(_refused(f"{len(of)} unknowns", MOST_UNKNOWNS))
    start, clock = np.asarray(quotient.x0), np.asarray(quotient.rates / quotient.tau)
    pathways = tuple(dict.fromkeys(path for path, _ in found))
    return Equations(
        classes=quotient.classes,
        rates=np.array([clock[label] for label, _ in of]),
        x0=np.array([start[pair] for pair in of]),
        of=tuple(of),
        pathways=pathways,
        terms=tuple((pathways.index(path), mode) for path, mode in found),
        S=S,
        D=D,
        parts=parts,
    )


def _refused(count: str, most: int) -> str:
    return (
        f"the reduction has {count}, a page integrates at most {most}: edges that start equal and "
        "always receive equal gradients are one unknown (Reduction.quotient), so give them one b0; "
        "or take fewer modes, or solve it in Python, reduction.solve(b0, ts)."
    )


def _expanded(
    quotient: Quotient,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[Monomial, int]]]:
    """Parts of l0, then S, D and (monomial, mode) of all products."""
    program, modes = quotient.program, quotient.x0.shape[1]
    apart = all(work.readout is None or work.readout.ndim == 2 for work in program.work)
    predictions = _predictions(quotient)
    known = sorted({path for group in predictions for found in group for path in found})
    terms = [(path, mode) for path in known for mode in range(modes)]
    if len(terms) > MOST_TERMS:
        raise ValueError(_refused(f"{len(terms)} products of unknowns", MOST_TERMS))
    S, D = np.zeros(len(terms)), np.zeros((len(terms), len(terms)))
    parts = np.zeros((modes if apart else 1) + 1)
    parts[-1] = float(program.constant)
    for group, target, weight in zip(predictions, program.targets, program.weights, strict=True):
        for one, y, w in zip(group, np.asarray(target), np.asarray(weight), strict=True):
            # (term, row, width of the output): what each product of unknowns adds to it.
            shown = np.zeros((len(terms), *y.shape))
            for k, (path, mode) in enumerate(terms):
                if path in one and apart:
                    shown[k, :, mode] = one[path][..., mode]
                elif path in one:
                    shown[k] = one[path][..., mode]
            weighted = shown * w
            S += np.einsum("kby,by->k", weighted, y)
            D += np.einsum("kby,jby->kj", weighted, shown)
            energy = np.sum(w * np.square(y), axis=0) / 2
            parts[:-1] += energy if apart else energy.sum()
    S[np.abs(S) < _NOISE * np.abs(S).max(initial=0.0)] = 0.0
    D[np.abs(D) < _NOISE * np.abs(D).max(initial=0.0)] = 0.0
    return parts, S, D, terms


def _predictions(quotient: Quotient) -> list[list[_Polynomial]]:
    """Per output group and prediction: monomial -> (row, width or mode[, mode])."""
    program, fits = quotient.program, np.asarray(quotient.fits)
    frozen = len(quotient.classes)  # the label of edges whose strength is 1 throughout
    hidden: list[_Polynomial] = [{} for _ in range(program.hidden)]
    outputs: list[list[_Polynomial]] = [[{} for _ in target] for target in program.targets]
    for work in program.work:
        gate, given = np.asarray(work.gate), work.given
        readout = None if work.readout is None else np.asarray(work.readout)
        for p, (label, target) in enumerate(
            zip(np.asarray(work.label).tolist(), np.asarray(work.target).tolist(), strict=True)
        ):
            if work.source is None:
                before: Mapping[Monomial, np.ndarray] = {(): np.asarray(given)[p]}
            else:
                before = hidden[int(work.source[p])]
            into = hidden[target] if readout is None else outputs[work.group][target]
            own = () if label == frozen else (label,)
            factor = gate[p] * (1.0 if label == frozen else fits[label])
            for path, value in before.items():
                sent = value * factor
                if readout is not None:
                    sign = readout[p] if readout.ndim == 2 else readout[p][None]
                    sent = sent * sign if readout.ndim == 2 else sent[:, None, :] * sign
                key = tuple(sorted((*path, *own)))
                into[key] = into[key] + sent if key in into else sent
            if len(into) > MOST_TERMS:
                raise ValueError(_refused(f"over {MOST_TERMS} kinds of paths", MOST_TERMS))
    return outputs


@dataclass
class System:
    """What reduced.js integrates: networks side by side, each with a loss of its own.

    A_i is the product of unknown[k]^powers[k] over k with term[k] = i; D has the entries
    (row, column) with row <= column. `term_loss` and `part_loss` say of which loss each is.
    """

    x0: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    S: list[float] = field(default_factory=list)
    term_loss: list[int] = field(default_factory=list)
    term: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    powers: list[float] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    D: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)
    part_loss: list[int] = field(default_factory=list)
    losses: int = 0

    def add(self, eq: Equations) -> None:
        """Put one more network beside those that are there."""
        first, base = len(self.x0), len(self.S)
        self.x0 += eq.x0.tolist()
        self.rates += eq.rates.tolist()
        self.S += eq.S.tolist()
        self.parts += eq.parts.tolist()
        self.part_loss += [self.losses] * len(eq.parts)
        self.term_loss += [self.losses] * len(eq.S)
        place = {pair: first + k for k, pair in enumerate(eq.of)}
        for k, (pathway, mode) in enumerate(eq.terms):
            path = eq.pathways[pathway]
            for label in dict.fromkeys(path):
                self.term.append(base + k)
                self.unknown.append(place[label, mode])
                self.powers.append(float(path.count(label)))
        for i, j in np.argwhere(np.triu(eq.D)).tolist():
            self.row.append(base + i)
            self.column.append(base + j)
            self.D.append(float(eq.D[i, j]))
        self.losses += 1


def system(parts: Sequence[Equations]) -> System:
    """The system of networks side by side."""
    found = System()
    for eq in parts:
        found.add(eq)
    return found
