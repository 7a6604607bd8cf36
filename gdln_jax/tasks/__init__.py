"""Tasks: architectures with gated data, one file per family (floor 4).

Each function returns a `Task` with `.graph`, `.data`, `.name` and `.meta`. May import floors 0 to
3.
"""

from gdln_jax.tasks._hierarchy import hierarchy as hierarchy
from gdln_jax.tasks._hierarchy import hierarchy_features as hierarchy_features
from gdln_jax.tasks._routing import routing as routing
from gdln_jax.tasks._routing import spectral_gap as spectral_gap
from gdln_jax.tasks._task import Task as Task
