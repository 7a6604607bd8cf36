"""Gates that are learned: by differentiating through the learning dynamics, or beside the weights.

N and H leave the inference of gating open. Here gates are continuous functions of variables, say
`jax.nn.sigmoid(logits)`, put into gated data by `with_gates`; `learn` optimises the variables for
an objective on the dynamics, such as `learning_time` or `output_gap`, from many starts in one
program. `LearnedGates` lets them learn together with the weights, at a rate of their own.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.gates._learn import Learned as Learned
from gdln_jax.gates._learn import learn as learn
from gdln_jax.gates._mode_networks import ModeNetworks as ModeNetworks
from gdln_jax.gates._objectives import learning_time as learning_time
from gdln_jax.gates._objectives import output_gap as output_gap
from gdln_jax.gates._variables import LearnedGates as LearnedGates
from gdln_jax.gates._variables import gate_share as gate_share
from gdln_jax.gates._variables import leaky as leaky
from gdln_jax.gates._variables import retention as retention
from gdln_jax.gates._with_gates import with_gates as with_gates

__getattr__, __dir__ = _namespace(__name__)
