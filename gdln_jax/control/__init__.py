"""Control of learning: how much effort when, exactly for a common rate and by descent for the rest.

A learner scales its rate by an effort g(t) >= 0, tau db/dt = -g dl/db, and minimises the integral
of l + (beta/2) g^2 over a given time T (Carrasco-Davis, Masis and Saxe 2024, without discount). As
effort changes time alone, (beta/2) g(t)^2 = l(t) - l(T) along every extremal, for any network
(theory#effort). `extremals`, `folds` and `jumps` follow from it; `law_residual` holds it against
any run. `optimise` is for what has no law: rates per edge, gates, mixtures of tasks.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.control._extremals import Extremal as Extremal
from gdln_jax.control._extremals import extremals as extremals
from gdln_jax.control._extremals import folds as folds
from gdln_jax.control._extremals import jumps as jumps
from gdln_jax.control._optimise import Optimised as Optimised
from gdln_jax.control._optimise import law_residual as law_residual
from gdln_jax.control._optimise import optimise as optimise

__getattr__, __dir__ = _namespace(__name__)
