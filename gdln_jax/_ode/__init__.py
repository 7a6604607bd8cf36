"""The one set-up of ordinary differential equations, and the loop over the steps of a solver."""

from gdln_jax._ode.equations import MAX_STEPS as MAX_STEPS
from gdln_jax._ode.equations import Adjoint as Adjoint
from gdln_jax._ode.equations import Crossing as Crossing
from gdln_jax._ode.equations import Run as Run
from gdln_jax._ode.equations import Settings as Settings
from gdln_jax._ode.equations import Solver as Solver
from gdln_jax._ode.equations import check_increasing as check_increasing
from gdln_jax._ode.equations import check_resolved as check_resolved
from gdln_jax._ode.equations import checked_times as checked_times
from gdln_jax._ode.equations import cross as cross
from gdln_jax._ode.equations import default_rtol as default_rtol
from gdln_jax._ode.equations import end_reported as end_reported
from gdln_jax._ode.equations import first_of as first_of
from gdln_jax._ode.equations import has_kinks as has_kinks
from gdln_jax._ode.equations import known_array as known_array
from gdln_jax._ode.equations import locate as locate
from gdln_jax._ode.equations import loss_reported as loss_reported
from gdln_jax._ode.equations import padded as padded
from gdln_jax._ode.equations import settings as settings
from gdln_jax._ode.equations import smallest_entry as smallest_entry
from gdln_jax._ode.equations import smallest_scale as smallest_scale
from gdln_jax._ode.equations import solve as solve
