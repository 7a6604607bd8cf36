"""One recipe per figure of the papers: data, checks with tolerances, and a picture.

`CATALOGUE` says what there is without importing any of it; `load(name)` imports the recipe's room,
which defines `Options` (a frozen dataclass), `run(options, progress) -> Result` and perhaps `QUICK`
(the option values of a short run). Floor 6: may import from floors 0-5.
"""

import importlib
from typing import Any

from gdln_jax.recipes._options import OptionError as OptionError
from gdln_jax.recipes._options import closest, with_values
from gdln_jax.recipes._recipe import Check as Check
from gdln_jax.recipes._recipe import Entry as Entry
from gdln_jax.recipes._recipe import Progress as Progress
from gdln_jax.recipes._recipe import Recipe as Recipe
from gdln_jax.recipes._recipe import Result as Result
from gdln_jax.recipes._recipe import silent as silent
from gdln_jax.recipes._write import write as write

# In the order of the papers. Adding a recipe: its room and one entry here.
CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "routing",
            "N Fig. 4",
            "M input and M output domains learn through one shared pathway, and generalise",
            (
                "flow = Eq. 15",
                "descent = Euler map of Eq. 13-14 (weights, loss)",
                "conserved matrices of E8",
                "final B2/B1 per mode",
                "reference values",
                "growth of layers from random weights",
                "zero-shot error",
            ),
            "gdln_jax.recipes.routing",
        ),
        Entry(
            "sharing",
            "N Fig. 5a-b",
            "Pathways that share more learn faster; shared and dedicated ones race in one network",
            (
                "full networks and reduction = Eq. 16-17, all P",
                "P^(-2/3) law, B2/B1 = P^(1/4)",
                "what the loser of a race keeps = exact law",
                "reference values",
            ),
            "gdln_jax.recipes.sharing",
        ),
        Entry(
            "generalisation",
            "N Fig. 5c",
            "Zero-shot error against K and, beside it, against the spectral gap, which orders it",
            (
                "untrained error against K in the reference's bands",
                "disjoint blocks do not generalise",
                "rank correlation with the gap against that with K/M, with bootstraps",
                "patterns of one K and different gaps",
            ),
            "gdln_jax.recipes.generalisation",
        ),
        Entry(
            "xor",
            "N Fig. 3",
            "XoR by four gated pathways and by ReLU networks, which find the four cell types",
            (
                "gated: flow = N Eq. 23, descent = Euler map",
                "ReLU: time to half the loss from E14, nothing fitted",
                "residual of a one-parameter fit",
                "four functional cell types",
                "reference values",
            ),
            "gdln_jax.recipes.xor",
        ),
        Entry(
            "contextual",
            "N A.2",
            "The context says which input counts: linear networks average, gated ones choose",
            (
                "flow = two-layer closed form",
                "population: [1/2 1/2] with loss 1/12; [1 0] and [0 1] with loss 0",
                "samples: least squares of each sample",
            ),
            "gdln_jax.recipes.contextual",
        ),
        Entry(
            "linear",
            "H Fig. 7",
            "A linear network learns a hierarchy, mode by mode, from any kind of start",
            (
                "flow = closed form: aligned, unbalanced, unaligned",
                "flow = coupled reduction where no frames exist; E20",
                "random networks = closed form, nothing fitted",
                "reference values",
            ),
            "gdln_jax.recipes.linear",
        ),
        Entry(
            "margin",
            "H Fig. 2",
            "XoR with a margin: a ReLU network is as fast as the faster of two gatings",
            (
                "gated: flow = closed form, descent = map",
                "crossovers of the exact times",
                "ReLU: time to criterion near the flow and at H's step",
                "shares of the two kinds of gates cross",
                "reference values",
            ),
            "gdln_jax.recipes.margin",
        ),
        Entry(
            "contexts",
            "H Fig. 3-4",
            "Items in contexts of different structure: which gated network a ReLU network follows",
            (
                "certificate: statistics that do not commute",
                "coupled reduction = flow of the gated network",
                "loss gaps of all gatings, with and without fitted scales",
                "power of ReLU units by gates",
                "reference values",
            ),
            "gdln_jax.recipes.contexts",
        ),
        Entry(
            "more-contexts",
            "H Fig. 5",
            "Any number of contexts in closed form, with initial values that are not free",
            (
                "residual: flow = E17; overlaps of E16",
                "gated and ReLU networks = closed form, nothing fitted",
                "whole output = H Eq. 7 along the common modes",
                "reference values",
            ),
            "gdln_jax.recipes.more_contexts",
        ),
        Entry(
            "depth",
            "H Fig. 6",
            "Two hidden layers: plateaus, how linear the first is, gates of the second",
            (
                "plateaus = best fits of their rank",
                "first layer: linear on the first plateau, not later",
                "power of second-layer units by gates",
                "reference values",
            ),
            "gdln_jax.recipes.depth",
        ),
        Entry(
            "claims",
            "R (summary of N)",
            "A third party's race equation and claims: experiment, numbers and verdict for each",
            (
                "clock, frozen strengths and depth race of the reference",
                "networks = law of the pathways, 2-4 layers",
                "facts of SCIENCE 5",
                "verdict on each of 12 claims",
            ),
            "gdln_jax.recipes.claims",
        ),
    )
}


def load(name: str) -> Recipe:
    """Import the recipe called `name`; `OptionError` with the nearest name if there is none."""
    if name not in CATALOGUE:
        raise OptionError(f"there is no recipe {name!r}{closest(name, CATALOGUE)}")
    entry = CATALOGUE[name]
    room = importlib.import_module(entry.room)
    return Recipe(
        name=entry.name,
        figure=entry.figure,
        summary=entry.summary,
        checks=entry.checks,
        options=room.Options,
        run=room.run,
        quick=getattr(room, "QUICK", None),
    )


def reproduce(
    name: str, *, quick: bool = False, progress: Progress = silent, **values: Any
) -> Result:
    """Run the recipe called `name` and return its `Result`; nothing is written.

    Args:
        name: one of `CATALOGUE`.
        quick: start from the recipe's short setting.
        progress: called as `progress(fraction, doing)` while the recipe runs.
        **values: option values by name, over the defaults (or the short setting).
    """
    recipe = load(name)
    options = with_values(recipe.options, {**(recipe.quick or {} if quick else {}), **values})
    return recipe.run(options, progress)
