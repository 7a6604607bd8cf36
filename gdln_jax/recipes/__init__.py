"""One recipe per figure of the papers: data, checks with tolerances, and a picture.

A recipe is a folder here and `CATALOGUE` the list of the folders; to load it imports neither JAX
nor matplotlib. `reproduce(name)` runs one, `redraw(file)` checks and draws a saved run again.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

from gdln_jax._checks import namespace as _namespace
from gdln_jax.recipes._core.declare import Criterion as Criterion
from gdln_jax.recipes._core.declare import Progress as Progress
from gdln_jax.recipes._core.declare import silent as silent
from gdln_jax.recipes._core.options import OptionError as OptionError
from gdln_jax.recipes._core.options import closest as _closest
from gdln_jax.recipes._core.options import describe as describe
from gdln_jax.recipes._core.options import parse as parse
from gdln_jax.recipes._core.options import with_values as with_values
from gdln_jax.recipes._core.recipe import Recipe as Recipe
from gdln_jax.recipes._core.recipe import Standing as Standing
from gdln_jax.recipes._core.result import Result as Result
from gdln_jax.recipes._core.write import foreign as foreign
from gdln_jax.recipes._core.write import read as _read
from gdln_jax.recipes._core.write import write as write
from gdln_jax.recipes._recipe import Check as Check
from gdln_jax.recipes._recipe import Entry as Entry
from gdln_jax.recipes._recipe import Recipe as _Loaded

# Recipes that have no folder yet, in the order of the papers; a folder of the name goes before.
_ENTRIES = (
    Entry(
        "routing",
        "N Fig. 4",
        "M input and M output domains learn through one shared pathway, and generalise",
        (
            "flow = Eq. 15 = reduced dynamics = quotient, rates 1/M found",
            "descent = Euler map of Eq. 13-14 (weights, loss)",
            "conserved matrices of E8",
            "final B2/B1 per mode",
            "reference values",
            "growth of layers from random weights",
            "zero-shot error",
        ),
        "gdln_jax.recipes.routing",
        claim="Learning is one race of all routes (Eq. 13-15); untrained routes come along",
        standing="holds under conditions",
        proviso="every input has K outputs and every output K inputs, trained routes have a "
        "spectral gap, and b(0) is not the init scale",
        errata=("E7", "E8", "E9", "E10", "E12"),
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
        claim="The more a pathway shares, the faster it learns (Eq. 16-17): it wins the race",
        standing="holds",
        proviso="what the loser keeps has an exact law, and the race gives no threshold in K",
        errata=("E5", "E11"),
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
        claim="From about 40 % of trained routes on, untrained ones are learned, too",
        standing="holds under conditions",
        proviso="for M = 10 and random patterns; what counts is the spectral gap of the "
        "trained routes",
        errata=("E7", "E10", "E11", "E12"),
    ),
    Entry(
        "initialisation",
        "N Fig. 6",
        "From small to large initial weights: a shared code and transfer, or neither",
        (
            "zero-shot error in the reference's bands; exponent in sigma_0",
            "rich end: loss = Eq. 15 from projected b(0)",
            "lazy end: loss = linear theory of the kernel at t = 0",
            "movement of kernel and weights, alignment of the code across domains",
            "steps: stable, and half of them tell the same",
        ),
        "gdln_jax.recipes.initialisation",
        claim="Small initial weights learn by the race and transfer; large ones are NTK-like",
        standing="holds under conditions",
        proviso="from the effective b(0); at the paper's width the largest scale still moves "
        "its kernel by a quarter, and width alone does not make it lazy",
        errata=("E9",),
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
        claim="A ReLU network learns XoR as a gated network of four paths does (Eq. 23)",
        standing="holds under conditions",
        proviso="from the effective initial value in place of sigma_0, near the flow",
        errata=("E4", "E13", "E14"),
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
        claim="Gated by context the network learns [1 0] and [0 1]; a linear one [1/2 1/2]",
        standing="holds",
        proviso="N Eq. 7-8 fail here, and the reduction is exact all the same",
        errata=("E4",),
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
        claim="A deep linear network learns a hierarchy mode by mode, in closed form (Eq. 7)",
        standing="holds",
        proviso="with the effective a(0) of each mode, and the gradient's sign put right",
        errata=("E19", "E20", "E21"),
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
        claim="A ReLU network finds the gating that learns fastest; the two cross at sqrt(2/3)",
        standing="holds under conditions",
        proviso="near the flow, in the limit of small initial values, and not at all times",
        errata=("E14", "E15", "E19", "E24"),
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
        claim="A ReLU network learns as the gated network of double-context pathways does",
        standing="holds under conditions",
        proviso="in the mean, with the scale of each kind of pathway chosen; not exactly, nor "
        "at all times",
        errata=("E16", "E18", "E19", "E22", "E23", "E24"),
    ),
    Entry(
        "more-contexts",
        "H Fig. 5",
        "Any number of contexts in closed form, with initial values that are not free",
        (
            "residual: flow = E17; overlaps of E16",
            "gated and ReLU networks = closed form, nothing fitted",
            "whole output = H Eq. 7 along the common modes",
            "number of contexts in which most power is on, both inputs",
            "reference values",
        ),
        "gdln_jax.recipes.more_contexts",
        claim="For any number C of contexts ReLU units gate on C - 1 of them, in closed form",
        standing="holds under conditions",
        proviso="the corrected closed form does; with 5 contexts most power is on in C - 2 for "
        "inputs as printed, in C - 1 for those of the public code",
        errata=("E16", "E17", "E18", "E19", "E23", "E24", "E26", "E27", "E28"),
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
        claim="Of two hidden layers the first stays linear, the second gates on two contexts",
        standing="holds under conditions",
        proviso="the first layer is linear on the first plateau only; units of a single "
        "context hold a part of the second",
        errata=("E19", "E25"),
    ),
    Entry(
        "gates",
        "H Fig. 8-9",
        "Gates of ReLU networks by clustering, how many modules, and how well they imitate",
        (
            "k-means as H has it and weighted by output power, over seeds",
            "number of modules from outputs over training",
            "imitation gap beside the spread of ReLU networks",
            "reference values",
            "gates learned through the dynamics: margin, routing, contexts, blocks of tasks",
        ),
        "gdln_jax.recipes.gates",
        claim="k-means on activation patterns finds the modules of a ReLU network",
        standing="holds under conditions",
        proviso="in all runs only if units are weighted by output power; the gated network "
        "then imitates, it is not identical",
        errata=("E24",),
    ),
    Entry(
        "predict",
        "N Fig. 3, H Fig. 2-5",
        "Gates, drops and plateaus of ReLU networks from their data alone, then trained",
        (
            "predicted T and plateaus = closed forms and reference",
            "trained networks: T of the drops and plateaus",
            "shares of rival gates from the same initial weights, their crossing",
            "near ties noticed",
            "imitation by gated networks of predicted gates",
        ),
        "gdln_jax.recipes.predict",
        claim="A ReLU network finds the gates that learn fastest; which, its training shows",
        standing="holds under conditions",
        proviso="from small weights, and the data alone tell which gates and when; not for "
        "near ties at finite weights, nor after a plateau that is left by itself",
        errata=("E14", "E15", "E23", "E24"),
    ),
    Entry(
        "claims",
        "R (summary of N)",
        "A third party's race equation and claims: experiment, numbers and verdict for each",
        (
            "clock, frozen strengths and depth race of the reference",
            "networks = law of the pathways, 2-4 layers",
            "facts of SCIENCE 5",
            "verdict on each of 12 claims, set-up by set-up",
        ),
        "gdln_jax.recipes.claims",
        claim="R's race equation, and what R says of winners, depth, momentum, cross-entropy",
        standing="holds under conditions",
        proviso="each claim has a verdict of its own in the table",
    ),
    Entry(
        "width",
        "Width (new)",
        "A wide network learns exactly as a small one whose size depends on the data alone",
        (
            "losses of wide = small networks: chain, gated graph, two normal layers",
            "sizes = formula",
            "truncations: gain per round, error estimate",
            "Adam is not exact",
            "reference values",
        ),
        "gdln_jax.recipes.width",
        claim="From any start a wide network is a small one, if its closure is small",
        standing="holds under conditions",
        proviso="orthogonal or framed hidden weights, or one hidden layer; normal hidden "
        "weights leave a truncation with an error estimate",
    ),
    Entry(
        "images",
        "N Fig. 7-10",
        "Rotated or permuted digits, MNIST or CIFAR-10: transfer to untrained routes",
        (
            "label agreement of output domains",
            "trained and untrained accuracy above the gap threshold",
            "none with one route per input, none at a large gain",
            "rank correlation with the gap",
        ),
        "gdln_jax.recipes.images",
        claim="Zero-shot transfer on real images, at small initial weights only",
        standing="holds under conditions",
        proviso="above the threshold of the spectral gap; CIFAR-10 without N's ResNet",
        errata=("E10", "E11", "E12"),
    ),
)

Listed = Entry | Recipe


def catalogue() -> dict[str, Listed]:
    """Return all recipes by name, in the order of the papers, from the folders that are here."""
    names = [one.name for one in pkgutil.iter_modules(__path__) if one.ispkg]
    folders = [importlib.import_module(f"{__name__}.{name}") for name in names if name[0] != "_"]
    found: dict[str, tuple[int, Listed]] = {
        one.name: (10 * k, one) for k, one in enumerate(_ENTRIES, 1)
    }
    found |= {one.RECIPE.name: (one.RECIPE.order, one.RECIPE) for one in folders}
    return {one.name: one for _, one in sorted(found.values(), key=lambda pair: pair[0])}


CATALOGUE = catalogue()


def entry(name: str) -> Listed:
    """Return the line of the catalogue; `OptionError`, with the nearest name, if there is none."""
    if name not in CATALOGUE:
        raise OptionError(f"there is no recipe {name!r}{_closest(name, CATALOGUE)}")
    return CATALOGUE[name]


def load(name: str) -> _Loaded | Recipe:
    """Return the recipe called `name`; `OptionError` as for `entry`."""
    line = entry(name)
    if isinstance(line, Recipe):
        return line
    room = importlib.import_module(line.room)
    return _Loaded(
        name=line.name,
        figure=line.figure,
        summary=line.summary,
        checks=line.checks,
        options=room.Options,
        run=room.run,
        quick=getattr(room, "QUICK", None),
    )


def reproduce(
    name: str, *, quick: bool = False, progress: bool | Progress = True, **values: Any
) -> Result:
    """Run the recipe called `name` and return its `Result`; nothing is written.

    Args:
        name: one of `CATALOGUE`.
        quick: start from the recipe's short setting.
        progress: a bar in terminals and notebooks after two seconds; False: none; or a function,
            called as `progress(fraction, doing)` while the recipe runs.
        **values: option values by name, over the defaults (or the short setting).
    """
    from gdln_jax._progress import shown

    recipe = load(name)
    options = with_values(recipe.options, {**(recipe.quick or {} if quick else {}), **values})
    with shown(name, progress) as report:
        return recipe.run(options, report or silent)


def redraw(file: Path | str) -> Result:
    """Measure, check and draw the run that is saved in `file` (NAME.nc) again, without running.

    Raises:
        OptionError: the file is not of a recipe, or of one whose options have changed since.
    """
    name, values, data = _read(file)
    recipe = load(name)
    if not isinstance(recipe, Recipe):
        raise OptionError(f"the recipe {name!r} cannot be drawn from its file")
    return recipe.examine(with_values(recipe.options, values), data)


__getattr__, __dir__ = _namespace(__name__)
