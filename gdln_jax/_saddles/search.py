"""`saddles`: blocks one by one, merged by time."""

import functools
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax._checks import answering, check_integer, check_positive
from gdln_jax._reduction.reduction import Reduction, StrengthsLike
from gdln_jax._reduction.refusal import check_ties
from gdln_jax._reduction.strengths import ModeStrengths
from gdln_jax._saddles.climb import Climb, RefusedError, Rise
from gdln_jax._saddles.landscape import NOISE, Block, ClassLoss, EdgeLoss, Landscape, blocks
from gdln_jax._saddles.origin import Origin
from gdln_jax._saddles.staircase import SaddleError, SaddleEvent, Staircase, order


@answering
def saddles(
    reduction: Reduction,
    c: StrengthsLike,
    *,
    quotient: bool = True,
    near: float = 0.05,
    max_events: int = 100,
    tol: float = 1e-8,
) -> Staircase:
    r"""Find order, times and plateaus of learning from b(0) = eps c, eps -> 0 (theory#saddles).

    Learning goes from saddle to saddle (Jacot et al. 2021, Pesme and Flammarion 2023). The time of
    each event is $\theta \ln(1/\varepsilon) + \kappa$, or $T^* \varepsilon^{-p}$ where strengths
    grow by a product of three or more. No differential equation in time is solved from the start,
    only orbits between saddles. Modes that do not meet in the loss are computed apart.

    Args:
        reduction: a diagonal reduction, in float64.
        c: direction of the start: one number, one per mode, or edge -> either. Signs count.
        quotient: merge edges that start equal and receive equal gradients.
        near: distance in theta, relative to theta, below which two events, or an event and the
            arrival at the plateau before it, get a flag.
        max_events: largest number of events per block.
        tol: gradient at which an orbit between saddles ends.

    Returns:
        A `Staircase`. Times are asymptotic; the flags say below which eps to trust them.

    Raises:
        SaddleError: a `ValueError` with a `.reason`: two events at one time ("simultaneous"), one
            driven by products ("driven"), a product of strengths of different orders ("unequal
            exponents"), a start on the stable set of a saddle ("stable set"), or a minimum at
            infinity ("orbit does not end").
        ValueError: a coupled reduction, float32, a c that breaks the ties or is not finite.

    Cost: per event some 500 gradients and Hessians of a block of n variables, and O(n^3) each.
    """
    if not isinstance(quotient, bool):
        raise ValueError(f"quotient is {quotient!r}; pass True to merge equal edges, or False.")
    land, start = _landscape(reduction, c, quotient=quotient)
    check_positive(near, "near")
    check_positive(tol, "tol")
    check_integer(max_events, "max_events", minimum=1)
    climbs = [Climb(block, start[block.index], near, tol) for block in blocks(land)]
    rises: list[tuple[int, Rise]] = []
    refused = []
    for number, climb in enumerate(climbs):
        try:
            for rise in itertools.islice(climb.events(), max_events):
                rises.append((number, rise))  # noqa: PERF401  those before a refusal count
        except RefusedError as reason:
            refused.append(reason)
    rises.sort(key=lambda one: order(one[1].stages, one[1].offset))
    again = functools.partial(
        _origin_of, quotient=quotient, near=near, max_events=max_events, tol=tol
    )
    places = tuple((number, len(rise.stages) - 1) for number, rise in rises)
    found = Staircase(
        _merged(land, [(climbs[number].block, rise) for number, rise in rises]),
        tuple(climb.end or f"stopped after {len(climb.passages)} events" for climb in climbs),
        Origin(reduction, c, land, tuple(climbs), places, again),
    )
    if refused:
        first = refused[0]
        raise SaddleError(
            f"{first.reason}: {first.text}. Events before it: {len(found.events)}, in "
            ".staircase of this error.",
            first.reason,
            found,
        )
    return found


def _origin_of(reduction: Reduction, c: StrengthsLike, **options: Any) -> Origin | None:
    return saddles(reduction, c, **options).origin


def _landscape(
    reduction: Reduction, c: StrengthsLike, *, quotient: bool
) -> tuple[Landscape, np.ndarray]:
    """The loss in metric coordinates, and the start in them, flat."""
    if not isinstance(reduction, Reduction):
        raise ValueError(
            f"saddles needs a reduction, and this is a {type(reduction).__name__}: make one, "
            "gdln.reduce(graph, data)."
        )
    if reduction.coupled:
        raise ValueError(
            "saddles needs a diagonal reduction, and this one is coupled: its matrices turn while "
            "they grow. Solve it, Reduction.solve, or reduce with on_inexact='warn' for the "
            "diagonal approximation."
        )
    b = reduction.strengths_of(c, name="c")
    assert isinstance(b, ModeStrengths)
    floats = [x for x in jax.tree.leaves(reduction.mode_data) if eqx.is_inexact_array(x)]
    if any(x.dtype != np.float64 for x in floats):
        raise ValueError(
            "saddles needs float64, since a deviation from a saddle is followed to 1e-9 of it: set "
            "jax.config.update('jax_enable_x64', True) before making arrays."
        )
    if not all(np.all(np.isfinite(stack)) for stack in b.stacks):
        raise ValueError("c holds values that are not finite.")
    if quotient:
        merged = reduction.quotient(b)
        root = np.sqrt(np.broadcast_to(1 / merged.rates[:, None], merged.x0.shape))
        land = Landscape(ClassLoss(merged.program), jnp.asarray(root), b.graph, merged.labels)
        return land, (root * np.asarray(merged.x0)).ravel()
    check_ties(reduction.ties, reduction.untied_residual, b)
    flat = np.asarray(b.flat())
    labels = tuple(range(len(flat)))
    land = Landscape(EdgeLoss(reduction.mode_data), jnp.ones(flat.shape), b.graph, labels)
    return land, flat.ravel()


def _merged(land: Landscape, rises: list[tuple[Block, Rise]]) -> tuple[SaddleEvent, ...]:
    """Events of all blocks in the order of time, with losses and strengths of the whole."""
    y = np.zeros(land.root.size)
    mode = np.tile(np.arange(1, land.modes + 1), len(land.root))
    loss = float(land.at(jnp.asarray(y)))
    events = []
    for block, rise in rises:
        moved = np.abs(rise.y - y[block.index]) > NOISE
        y[block.index] = rise.y
        thetas = [coefficient for _, power, coefficient in rise.stages if not power]
        events.append(
            SaddleEvent(
                rise.kind,
                rise.stages,
                float(sum(thetas)),
                rise.offset,
                rise.rate,
                tuple(sorted(set(mode[block.index][moved].tolist()))),
                loss,
                loss - rise.drop,
                land.strengths(y),
                rise.flags,
            )
        )
        loss -= rise.drop
    return tuple(events)
