"""The ReLU side (H): networks with rectified layers, the gates that their units realise, the
gated linear network that a ReLU network is at a given moment, the initial values of its pathways,
which gates are possible at all, and which ones data will make (H Sec. 3-6; E14, E16-E17, E22-E25).

Convention: a unit whose pre-activation is exactly 0 is off, here and in every derivative.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.relu._as_gated import as_gated as as_gated
from gdln_jax.relu._certify import GateCertificate as GateCertificate
from gdln_jax.relu._certify import certify as certify
from gdln_jax.relu._change_points import change_points as change_points
from gdln_jax.relu._change_points import coactivation as coactivation
from gdln_jax.relu._clock import Clock as Clock
from gdln_jax.relu._clock import fit_clock as fit_clock
from gdln_jax.relu._dormant import DormantFlow as DormantFlow
from gdln_jax.relu._dormant import dormant_flow as dormant_flow
from gdln_jax.relu._drops import Drops as Drops
from gdln_jax.relu._drops import match_drops as match_drops
from gdln_jax.relu._explain import explain as explain
from gdln_jax.relu._explanation import Explanation as Explanation
from gdln_jax.relu._expressible import Expressible as Expressible
from gdln_jax.relu._gates import GateModules as GateModules
from gdln_jax.relu._gates import Snapshots as Snapshots
from gdln_jax.relu._gates import discover_gates as discover_gates
from gdln_jax.relu._gates import snapshot as snapshot
from gdln_jax.relu._gates_choice import GateChoice as GateChoice
from gdln_jax.relu._gates_choice import choose_k as choose_k
from gdln_jax.relu._gates_fit import ScaleFit as ScaleFit
from gdln_jax.relu._gates_fit import fit_scales as fit_scales
from gdln_jax.relu._gates_network import build_gated as build_gated
from gdln_jax.relu._gates_null import GateNull as GateNull
from gdln_jax.relu._gates_null import null_gates as null_gates
from gdln_jax.relu._head_start import HeadStart as HeadStart
from gdln_jax.relu._head_start import head_start as head_start
from gdln_jax.relu._history import History as History
from gdln_jax.relu._history import history as history
from gdln_jax.relu._imitation import ImitationGap as ImitationGap
from gdln_jax.relu._imitation import imitation_gap as imitation_gap
from gdln_jax.relu._implementable import implementable_patterns as implementable_patterns
from gdln_jax.relu._masks import block_mask as block_mask
from gdln_jax.relu._network import ReLUNetwork as ReLUNetwork
from gdln_jax.relu._patterns import PatternPower as PatternPower
from gdln_jax.relu._patterns import activation_patterns as activation_patterns
from gdln_jax.relu._patterns import pattern_power as pattern_power
from gdln_jax.relu._patterns import unit_power as unit_power
from gdln_jax.relu._prediction import GatePrediction as GatePrediction
from gdln_jax.relu._prediction import predict_gates as predict_gates
from gdln_jax.relu._settled import DormantGates as DormantGates
from gdln_jax.relu._table import read_data as read_data

__getattr__, __dir__ = _namespace(__name__)
