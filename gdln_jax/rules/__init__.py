"""Optimisers that are exact on the aligned manifold at any step size (theory#optimisers).

Each is an optax transformation: pass it to `gdln.train` on a `GatedNetwork`, or to
`Reduction.train` on mode strengths. It acts on every weight matrix by itself and commutes with
orthogonal changes of basis on both sides, which is why training in mode coordinates is the same
as training the network (theory#optimisers, 2).
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.rules._by_edge import by_edge as by_edge
from gdln_jax.rules._rule import InexactRuleError as InexactRuleError
from gdln_jax.rules._rule import Rule as Rule
from gdln_jax.rules._rules import muon as muon
from gdln_jax.rules._rules import normalized as normalized
from gdln_jax.rules._rules import per_matrix as per_matrix
from gdln_jax.rules._rules import sam as sam
from gdln_jax.rules._rules import sgd as sgd
from gdln_jax.rules._rules import shampoo as shampoo

__getattr__, __dir__ = _namespace(__name__)
