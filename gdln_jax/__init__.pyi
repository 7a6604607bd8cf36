"""The public names, in the order of the workflow; `__init__.py` reads them here."""

# == Settings
from gdln_jax._machine import configure as configure

# == Graph and data
from gdln_jax._graph import Graph as Graph
from gdln_jax._data.gated import GatedData as GatedData
from gdln_jax._data.patterns import Patterns as Patterns
from gdln_jax._data.schedule import Schedule as Schedule
from gdln_jax._data.folding import fold_gates as fold_gates
from gdln_jax._data.packing import pack as pack
from gdln_jax._data.packed import PackedData as PackedData

# == Networks and losses
from gdln_jax._network.gated import GatedNetwork as GatedNetwork
from gdln_jax import init as init
from gdln_jax._network.losses import mse as mse
from gdln_jax._network.losses import cross_entropy as cross_entropy
from gdln_jax._network.losses import predictive_coding as predictive_coding

# == Gradient flow and training
from gdln_jax._flow import gradient_flow as gradient_flow
from gdln_jax._train import train as train
from gdln_jax import rules as rules
from gdln_jax._train import flow_time as flow_time
from gdln_jax._train import LostUpdatesWarning as LostUpdatesWarning
from gdln_jax._solution import Trajectory as Trajectory
from gdln_jax._solution import STATUS as STATUS
from gdln_jax._solution import SolveError as SolveError
from gdln_jax._solution import PlateauWarning as PlateauWarning

# == Reduction and certificate
from gdln_jax._paths import path_statistics as path_statistics
from gdln_jax._paths import PathStatistics as PathStatistics
from gdln_jax._paths import path_sum_gradient as path_sum_gradient
from gdln_jax._reduction.reduce import reduce as reduce
from gdln_jax._reduction.reduction import Reduction as Reduction
from gdln_jax._reduction.schedule import ReducedSchedule as ReducedSchedule
from gdln_jax._reduction.schedule import QuotientSchedule as QuotientSchedule
from gdln_jax._reduction.refusal import InexactReductionError as InexactReductionError
from gdln_jax._reduction.refusal import InexactReductionWarning as InexactReductionWarning
from gdln_jax._reduction.table import PathTable as PathTable
from gdln_jax._reduction.strengths import ModeStrengths as ModeStrengths
from gdln_jax._reduction.strengths import MatrixStrengths as MatrixStrengths
from gdln_jax._reduction.rules import rule_residual as rule_residual
from gdln_jax._reduction.rules import RuleResidual as RuleResidual
from gdln_jax.rules._rule import InexactRuleError as InexactRuleError
from gdln_jax._reduction.curvature import SaddleWarning as SaddleWarning
from gdln_jax._reduction.quotient import Quotient as Quotient
from gdln_jax._reduction.effective import effective_initial as effective_initial
from gdln_jax._reduction.effective import expected_initial as expected_initial
from gdln_jax._reduction.effective import EffectiveInitial as EffectiveInitial
from gdln_jax._reduction.flow import ReducedTrajectory as ReducedTrajectory
from gdln_jax._network.pathways import Pathways as Pathways

# == Closed forms, times, saddles
from gdln_jax import exact as exact
from gdln_jax._times import time_to as time_to
from gdln_jax._ode import Crossing as Crossing
from gdln_jax._times import until_learned as until_learned
from gdln_jax._times import unlearned as unlearned
from gdln_jax._saddles.search import saddles as saddles
from gdln_jax._saddles.staircase import Staircase as Staircase
from gdln_jax._saddles.staircase import SaddleEvent as SaddleEvent
from gdln_jax._saddles.staircase import SaddleError as SaddleError

# == Tasks and images
from gdln_jax import images as images
from gdln_jax import tasks as tasks

# == ReLU networks and their gates
from gdln_jax import relu as relu
from gdln_jax.relu._network import ReLUNetwork as ReLUNetwork
from gdln_jax.relu._patterns import activation_patterns as activation_patterns
from gdln_jax.relu._gates import discover_gates as discover_gates
from gdln_jax.relu._gates_network import build_gated as build_gated
from gdln_jax.relu._imitation import imitation_gap as imitation_gap

# == Races, gates, control
from gdln_jax import race as race
from gdln_jax import gates as gates
from gdln_jax import control as control

# == Measures, width, noise
from gdln_jax import measures as measures
from gdln_jax._width.reduce import reduce_width as reduce_width
from gdln_jax._width.drawing import draw_width as draw_width
from gdln_jax._width.reduction import WidthReduction as WidthReduction
from gdln_jax._width.reduction import WidthRun as WidthRun
from gdln_jax._width.closure import OpenClosureError as OpenClosureError
from gdln_jax import noise as noise

# == Sweeps, pictures, recipes
from gdln_jax._sweep import sweep as sweep
from gdln_jax._sweep import SweepStoreError as SweepStoreError
from gdln_jax._sweep import SweepLockedError as SweepLockedError
from gdln_jax import plot as plot
from gdln_jax._live import live_page as live_page
from gdln_jax import recipes as recipes
from gdln_jax._citation import citation as citation
from gdln_jax._version import __version__ as __version__
