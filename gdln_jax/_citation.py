"""The works behind the package and behind a result of it, as BibTeX. Imports nothing heavy.

The entries are in `works.bib`. `USED` is the one table of what rests on which.
"""

import functools
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

PAPERS = ("saxe2022neural", "jarvis2025make")
_JAX = ("jax2018github", "kidger2021equinox")
_RANDOM = ("lampinen2019analytic", "benaych2012singular")
_OPTAX, _SCIPY, _SKLEARN = "deepmind2020jax", "virtanen2020scipy", "pedregosa2011scikit"
_STAIRCASE = ("jacot2021saddle", "pesme2023saddle")
_FUSION = ("zhang2024understanding",)
_GATES = ("maennel2018gradient", "boursier2022gradient", "kunin2025alternating")
_RICCATI = ("fukumizu1998effect", "braun2022exact")
_MOMENTUM = ("barrett2021implicit", "ghosh2023implicit")
_SEMANTIC = ("saxe2019mathematical", "benaych2012singular")
_CRITICAL = ("carrasco2023meta", "kleinman2024critical")
_EVENT = ("kidger2021on", "rader2024optimistix")

# Dotted name -> keys of what everything below that name rests on. Names are those of modules,
# classes and functions; of tasks, rules and recipes (`gdln_jax.recipes.saddles`); and of runs:
# `flow.float64` is one in float64 by the default solver, `train` a discrete one.
USED: Mapping[str, tuple[str, ...]] = {
    "gdln_jax": (PAPERS[0], *_JAX),
    "gdln_jax._network.losses.predictive_coding": ("innocenti2024only",),
    "gdln_jax._ode": _EVENT,
    "gdln_jax._reduction": ("cardoso1996jacobi",),
    "gdln_jax._reduction.effective": (_SCIPY,),
    "gdln_jax._saddles": (*_STAIRCASE, *_FUSION, _SCIPY),
    "gdln_jax._sweep": ("hoyer2017xarray",),
    "gdln_jax._times": _EVENT,
    "gdln_jax.control": ("carrasco2023meta", _SCIPY),
    "gdln_jax.control._optimise": (_OPTAX,),
    "gdln_jax.exact._attention": ("zhang2025training",),
    "gdln_jax.exact._chain": ("saxe2014exact",),
    "gdln_jax.exact._discrete.momentum_clock_error": _MOMENTUM,
    "gdln_jax.exact._fusion": _FUSION,
    "gdln_jax.exact._modes": ("saxe2014exact",),
    "gdln_jax.exact._modes.context_mode": (PAPERS[1],),
    "gdln_jax.exact._recurrence": ("proca2025learning",),
    "gdln_jax.exact._tied.ssl_mode": ("simon2023stepwise",),
    "gdln_jax.exact._tied.ssl_white": ("simon2023stepwise",),
    "gdln_jax.exact._two_layer": _RICCATI,
    "gdln_jax.exact._two_layer_sequence": _RICCATI,
    "gdln_jax.exact._xor.margin_crossover": (PAPERS[1],),
    "gdln_jax.exact._xor.margin_loss": (PAPERS[1],),
    "gdln_jax.exact._xor.margin_time": (PAPERS[1],),
    "gdln_jax.gates._learn": (_OPTAX,),
    "gdln_jax.gates._objectives": _EVENT,
    "gdln_jax.images._features": (_OPTAX, "kingma2015adam"),
    "gdln_jax.images._sets": (_SKLEARN,),
    "gdln_jax.measures._coherence": _SEMANTIC,
    "gdln_jax.measures._kernels.kernel_distance": ("fort2020deep",),
    "gdln_jax.measures._representations.mds": (_SKLEARN,),
    "gdln_jax.noise": (*_RANDOM, _SCIPY),
    "gdln_jax.plot._differentiation": (_SCIPY,),
    "gdln_jax.race": ("kidger2021on", _SCIPY),
    "gdln_jax.recipes": ("hoyer2017xarray", "kidger2021on", "prince1981high"),
    "gdln_jax.recipes.attention": ("zhang2025training", _OPTAX, _SCIPY, "jordan2024muon"),
    "gdln_jax.recipes.claims": (*_MOMENTUM, _OPTAX),
    "gdln_jax.recipes.contexts": (PAPERS[1], _OPTAX, _SCIPY, _SKLEARN),
    "gdln_jax.recipes.contextual": (_OPTAX,),
    "gdln_jax.recipes.depth": (PAPERS[1], _OPTAX),
    "gdln_jax.recipes.gates": (PAPERS[1], _SKLEARN, _OPTAX),
    "gdln_jax.recipes.generalisation": (_OPTAX, _SCIPY),
    "gdln_jax.recipes.images": (_SKLEARN, _SCIPY),
    "gdln_jax.recipes.initialisation": (_OPTAX, _SCIPY),
    "gdln_jax.recipes.learned-gates": (_OPTAX, "kingma2015adam", "rader2024optimistix"),
    "gdln_jax.recipes.linear": (PAPERS[1], "saxe2014exact", _OPTAX),
    "gdln_jax.recipes.margin": (PAPERS[1], _OPTAX),
    "gdln_jax.recipes.more-contexts": (PAPERS[1], _OPTAX),
    "gdln_jax.recipes.optimisers": (
        "jordan2024muon",
        "gupta2018shampoo",
        "foret2021sharpness",
        _OPTAX,
        "kingma2015adam",
    ),
    "gdln_jax.recipes.predict": (PAPERS[1], *_GATES, _SCIPY, _OPTAX, _SKLEARN),
    "gdln_jax.recipes.routing": (_OPTAX, _SKLEARN),
    "gdln_jax.recipes.saddles": (*_STAIRCASE, *_FUSION, _SCIPY),
    "gdln_jax.recipes.semantic": (*_SEMANTIC, _SCIPY),
    "gdln_jax.recipes.sequences": (*_RICCATI, *_CRITICAL, _SCIPY),
    "gdln_jax.recipes.staircases": (
        "proca2025learning",
        "simon2023stepwise",
        "zhang2025training",
    ),
    "gdln_jax.recipes.width": (_OPTAX, "kingma2015adam"),
    "gdln_jax.recipes.xor": (_OPTAX,),
    "gdln_jax.relu": (PAPERS[1],),
    "gdln_jax.relu._certify": (*_GATES, _SCIPY),
    "gdln_jax.relu._change_points": ("truong2020selective",),
    "gdln_jax.relu._dormant": (*_GATES, _SCIPY),
    "gdln_jax.relu._explain": (_SKLEARN, "truong2020selective", *_GATES, _SCIPY, _OPTAX),
    "gdln_jax.relu._explanation": (_SKLEARN, "truong2020selective", *_GATES, _SCIPY, _OPTAX),
    "gdln_jax.relu._expressible": (_SKLEARN,),
    "gdln_jax.relu._gates": (_SKLEARN,),
    "gdln_jax.relu._gates_choice": (_SKLEARN, _OPTAX),
    "gdln_jax.relu._gates_fit": (_SCIPY,),
    "gdln_jax.relu._gates_null": (_SKLEARN,),
    "gdln_jax.relu._head_start": ("kidger2021on",),
    "gdln_jax.relu._implementable": ("cover1965geometrical", _SCIPY),
    "gdln_jax.relu._prediction": (*_GATES, _SCIPY),
    "gdln_jax.relu._settled": (*_GATES, _SCIPY),
    "gdln_jax.rules": (_OPTAX,),
    "gdln_jax.rules._rules.AverageState": ("jordan2024muon",),
    "gdln_jax.rules._rules.ShampooState": ("gupta2018shampoo",),
    "gdln_jax.rules.muon": ("jordan2024muon",),
    "gdln_jax.rules.sam": ("foret2021sharpness",),
    "gdln_jax.rules.shampoo": ("gupta2018shampoo",),
    "gdln_jax.tasks.linear_attention": ("zhang2025training",),
    "gdln_jax.tasks.linear_rnn": ("proca2025learning",),
    "gdln_jax.tasks.linear_ssl": ("simon2023stepwise",),
    "gdln_jax.tasks.margin_xor": (PAPERS[1],),
    "gdln_jax.tasks.semantic_contexts": (PAPERS[1],),
    "gdln_jax.tasks.structure": (PAPERS[1],),
    "diffrax": ("kidger2021on",),
    "optax": (_OPTAX,),
    "optax.contrib._muon.MuonState": ("jordan2024muon",),
    "optax.contrib._sam.SAMState": ("foret2021sharpness",),
    "optax._src.transform.ScaleByAdamState": ("kingma2015adam",),
    "train": (_OPTAX,),
    "flow": ("kidger2021on",),
    "flow.float32": ("tsitouras2011runge",),
    "flow.float64": ("prince1981high",),
    "flow.kinks": ("bogacki1989pair",),
}

# What a result holds of what made it.
_INSIDE = ("optimizer_state", "final", "settings")
# Attributes of data sets, and what they say.
_OF_FILES = (
    ("recipe", "gdln_jax.recipes.{recipe}"),
    ("sweep_spec", "gdln_jax._sweep"),
    ("gdln_jax", "gdln_jax"),
)


@functools.cache
def works() -> dict[str, str]:
    """Return all entries by key, in the order of `works.bib`."""
    text = Path(__file__).with_name("works.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{.*?^\}$", text, flags=re.DOTALL | re.MULTILINE)
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries}


def citation(*given: object) -> str:
    """Return the BibTeX of the works that results, functions or recipes rest on.

    Args:
        *given: any results of this package (runs, reductions, quotients, staircases, predictions,
            results of recipes and sweeps and their data sets), tasks, rules, functions, classes and
            namespaces of it, optimisers of optax and solvers of diffrax; or keys of entries, or how
            these begin (`"saxe2022"`). Default: the papers N and H, whose results the package
            computes.

    Returns:
        The entries, each once, parted by empty lines. A run knows neither its task nor its solver:
        the default solver of its precision is listed, unless one is given beside it,
        `citation(run, task, diffrax.Kvaerno5())`. Its optimiser is listed where the state tells
        which it was (Adam, Muon, Shampoo); give any other beside the run.

    Raises:
        ValueError: no entry has this key.
        TypeError: what the package neither made nor uses.
    """
    solvers = [one for one in given if _is_solver(one)]
    used: set[str] = set()
    for one in given or PAPERS:
        keys = _keys(one) if isinstance(one, str) else _rests_on(one, bool(solvers))
        used.update(keys)
    entries = [entry for key, entry in works().items() if key in used]
    entries += [entry for solver in solvers for entry in _of_solver(solver)]
    return "\n\n".join(dict.fromkeys(entries))


def _keys(word: str) -> list[str]:
    found = [key for key in works() if word and key.startswith(word)]
    if not found:
        raise ValueError(f"citation: unknown work {word!r}; known are {sorted(works())}")
    return found


def _rests_on(given: object, solver_given: bool) -> set[str]:
    places = set(_places(given))
    if solver_given:
        places = {place for place in places if not place.startswith("flow.")} | {"flow"}
    found = {
        name: keys
        for name, keys in USED.items()
        if any(place == name or place.startswith(f"{name}.") for place in places)
    }
    if not found:
        raise TypeError(
            f"citation: an object of type {type(given).__name__} was neither made nor used by "
            "gdln_jax. Pass results, reductions, tasks, rules, functions or namespaces of it, a "
            "solver of diffrax, an optimiser of optax, or keys such as 'saxe2022'."
        )
    return {key for keys in found.values() for key in keys}


def _places(given: object) -> Iterator[str]:
    """The dotted names of what `given` is, was made by and holds."""
    if isinstance(given, ModuleType):
        yield given.__name__
        return
    named = hasattr(given, "__qualname__")  # functions and classes
    kind: Any = given if named else type(given)
    for one in getattr(kind, "__mro__", (kind,)):
        yield f"{one.__module__}.{one.__qualname__}"
    for part in () if named else _parts(given):
        yield from _places(part)
    package = ".".join(kind.__module__.split(".")[:2])
    if package.startswith("gdln_jax"):
        words = (getattr(given, attribute, None) for attribute in ("name", "kind", "__qualname__"))
        yield from (f"{package}.{word}" for word in words if isinstance(word, str))
        yield from () if named else _clock(given)
    attributes = getattr(given, "attrs", None)
    if isinstance(attributes, Mapping):  # a data set, perhaps read from a file
        yield from (place.format_map(attributes) for key, place in _OF_FILES if key in attributes)


def _parts(given: object) -> Iterable[object]:
    """States and settings of optimisers, wherever they are, and final models of runs."""
    if isinstance(given, Mapping):
        return given.values()
    held: tuple[object, ...] = given if isinstance(given, tuple) else ()
    if type(given).__module__.startswith("gdln_jax"):
        held += (*(getattr(given, name, None) for name in _INSIDE),)
    return held


def _clock(given: object) -> Iterator[str]:
    """Whether a run was a flow, and by which solver if none was named, or discrete training."""
    ts, losses = getattr(given, "ts", None), getattr(given, "losses", None)
    if ts is None or losses is None:
        return
    if "int" in str(ts.dtype):
        yield "train"
    elif getattr(getattr(given, "final", None), "kinks", False) is True:
        yield "flow.kinks"
    else:
        yield f"flow.{losses.dtype}"


def _is_solver(given: object) -> bool:
    kind = given if isinstance(given, type) else type(given)
    return any(one.__name__ == "AbstractSolver" for one in kind.__mro__)


def _of_solver(solver: object) -> list[str]:
    """The references in a diffrax solver's docstring."""
    kind = solver if isinstance(solver, type) else type(solver)
    found = re.findall(r"```bibtex(.*?)```", kind.__doc__ or "", flags=re.DOTALL)
    return [inspect.cleandoc(entry) for entry in found]
