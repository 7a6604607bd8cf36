"""gdln_jax: gated deep linear networks in JAX. The table of contents, in the order of the workflow.

A name is imported from its room when it is first used (PEP 562), so that `import gdln_jax` costs
nothing. To add a name: one line in `_ROOMS` and one under `TYPE_CHECKING`.
"""

import difflib
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gdln_jax import exact as exact
    from gdln_jax import gates as gates
    from gdln_jax import images as images
    from gdln_jax import init as init
    from gdln_jax import measures as measures
    from gdln_jax import noise as noise
    from gdln_jax import plot as plot
    from gdln_jax import race as race
    from gdln_jax import recipes as recipes
    from gdln_jax import relu as relu
    from gdln_jax import tasks as tasks
    from gdln_jax._citation import citation as citation
    from gdln_jax._data import GatedData as GatedData
    from gdln_jax._data import Patterns as Patterns
    from gdln_jax._descent import LostUpdatesWarning as LostUpdatesWarning
    from gdln_jax._descent import flow_time as flow_time
    from gdln_jax._descent import train as train
    from gdln_jax._effective import EffectiveInitial as EffectiveInitial
    from gdln_jax._effective import effective_initial as effective_initial
    from gdln_jax._effective import expected_initial as expected_initial
    from gdln_jax._flow import gradient_flow as gradient_flow
    from gdln_jax._graph import Graph as Graph
    from gdln_jax._modes import ModeStrengths as ModeStrengths
    from gdln_jax._network import GatedNetwork as GatedNetwork
    from gdln_jax._plan import PackedData as PackedData
    from gdln_jax._plan import pack as pack
    from gdln_jax._quotient import Quotient as Quotient
    from gdln_jax._reduced_flow import ReducedTrajectory as ReducedTrajectory
    from gdln_jax._reduction import InexactReductionError as InexactReductionError
    from gdln_jax._reduction import InexactReductionWarning as InexactReductionWarning
    from gdln_jax._reduction import PathTable as PathTable
    from gdln_jax._reduction import Reduction as Reduction
    from gdln_jax._reduction import reduce as reduce
    from gdln_jax._schedule import Schedule as Schedule
    from gdln_jax._statistics import PathStatistics as PathStatistics
    from gdln_jax._statistics import path_statistics as path_statistics
    from gdln_jax._statistics import path_sum_gradient as path_sum_gradient
    from gdln_jax._times import Crossing as Crossing
    from gdln_jax._times import time_to as time_to
    from gdln_jax._times import unlearned as unlearned
    from gdln_jax._times import until_learned as until_learned
    from gdln_jax._trajectory import PlateauWarning as PlateauWarning
    from gdln_jax._trajectory import Trajectory as Trajectory
    from gdln_jax.losses import cross_entropy as cross_entropy
    from gdln_jax.losses import mse as mse
    from gdln_jax.relu._gates import discover_gates as discover_gates
    from gdln_jax.relu._gates_network import build_gated as build_gated
    from gdln_jax.relu._imitation import imitation_gap as imitation_gap
    from gdln_jax.relu._network import ReLUNetwork as ReLUNetwork
    from gdln_jax.relu._patterns import activation_patterns as activation_patterns
    from gdln_jax.sweep import SweepLockedError as SweepLockedError
    from gdln_jax.sweep import SweepStoreError as SweepStoreError
    from gdln_jax.sweep import sweep as sweep
else:
    _ROOMS = {
        # room: the names it hands on, () for a namespace that users type
        "_graph": ("Graph",),
        "_data": ("GatedData", "Patterns"),
        "_schedule": ("Schedule",),
        "_plan": ("pack", "PackedData"),
        "_network": ("GatedNetwork",),
        "init": (),
        "losses": ("mse", "cross_entropy"),
        "_flow": ("gradient_flow",),
        "_descent": ("train", "flow_time", "LostUpdatesWarning"),
        "_trajectory": ("Trajectory", "PlateauWarning"),
        "_statistics": ("path_statistics", "PathStatistics", "path_sum_gradient"),
        "_reduction": (
            "reduce",
            "Reduction",
            "InexactReductionError",
            "InexactReductionWarning",
            "PathTable",
        ),
        "_modes": ("ModeStrengths",),
        "_quotient": ("Quotient",),
        "_effective": ("effective_initial", "expected_initial", "EffectiveInitial"),
        "_reduced_flow": ("ReducedTrajectory",),
        "exact": (),
        "_times": ("time_to", "Crossing", "until_learned", "unlearned"),
        "images": (),
        "tasks": (),
        "relu": (),
        "relu._network": ("ReLUNetwork",),
        "relu._patterns": ("activation_patterns",),
        "relu._gates": ("discover_gates",),
        "relu._gates_network": ("build_gated",),
        "relu._imitation": ("imitation_gap",),
        "race": (),
        "gates": (),
        "measures": (),
        "noise": (),
        "sweep": ("sweep", "SweepStoreError", "SweepLockedError"),
        "plot": (),
        "recipes": (),
        "_citation": ("citation",),
    }
    _ROOM_OF = {name: room for room, names in _ROOMS.items() for name in (names or (room,))}
    __all__ = list(_ROOM_OF)

    def __getattr__(name):
        if name not in _ROOM_OF:
            near = difflib.get_close_matches(name, _ROOM_OF, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        room = importlib.import_module(f"{__name__}.{_ROOM_OF[name]}")
        value = getattr(room, name) if name in _ROOMS[_ROOM_OF[name]] else room
        globals()[name] = value
        return value

    def __dir__():
        return [*__all__, "__version__"]

    class _Contents(ModuleType):
        """Where a room and the name it hands on are spelled alike (`sweep`), the name wins."""

        def __setattr__(self, name, value):
            if isinstance(value, ModuleType) and name in _ROOMS.get(name, ()):
                value = getattr(value, name)
            super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Contents
