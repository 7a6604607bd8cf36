"""What is read off trained networks: errors by route, representations, modes, kernels, MDS.

Arrays in, arrays out; jit, vmap and grad go through all of it except `mds` (host code). Networks
may carry leading axes (seeds, times) only where a docstring says so; otherwise vmap.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.measures._coherence import Coherence as Coherence
from gdln_jax.measures._coherence import coherence as coherence
from gdln_jax.measures._conserved import balancedness as balancedness
from gdln_jax.measures._conserved import conserved as conserved
from gdln_jax.measures._conserved import conserved_laws as conserved_laws
from gdln_jax.measures._errors import ZeroShotError as ZeroShotError
from gdln_jax.measures._errors import error_by_group as error_by_group
from gdln_jax.measures._errors import input_output_maps as input_output_maps
from gdln_jax.measures._errors import relative_error as relative_error
from gdln_jax.measures._errors import route_errors as route_errors
from gdln_jax.measures._errors import zero_shot_error as zero_shot_error
from gdln_jax.measures._forgetting import Forgetting as Forgetting
from gdln_jax.measures._forgetting import forgetting as forgetting
from gdln_jax.measures._kernels import KernelMovement as KernelMovement
from gdln_jax.measures._kernels import empirical_ntk as empirical_ntk
from gdln_jax.measures._kernels import kernel_alignment as kernel_alignment
from gdln_jax.measures._kernels import kernel_distance as kernel_distance
from gdln_jax.measures._kernels import kernel_movement as kernel_movement
from gdln_jax.measures._kernels import weight_movement as weight_movement
from gdln_jax.measures._modes import SharedStrengths as SharedStrengths
from gdln_jax.measures._modes import VectorAlignment as VectorAlignment
from gdln_jax.measures._modes import frame_distance as frame_distance
from gdln_jax.measures._modes import mode_strengths as mode_strengths
from gdln_jax.measures._modes import shared_strengths as shared_strengths
from gdln_jax.measures._modes import singular_values as singular_values
from gdln_jax.measures._modes import singular_vector_alignment as singular_vector_alignment
from gdln_jax.measures._modes import subspace_alignment as subspace_alignment
from gdln_jax.measures._representations import domain_alignment as domain_alignment
from gdln_jax.measures._representations import mds as mds
from gdln_jax.measures._representations import (
    representational_similarity as representational_similarity,
)
from gdln_jax.measures._richness import Richness as Richness
from gdln_jax.measures._richness import richness as richness

__getattr__, __dir__ = _namespace(__name__)
