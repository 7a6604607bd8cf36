"""Tasks: architectures with gated data, one file per family.

Each function returns a `Task` with `.graph`, `.data`, `.name` and `.meta`.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.tasks._attention import linear_attention as linear_attention
from gdln_jax.tasks._contexts import semantic_contexts as semantic_contexts
from gdln_jax.tasks._contexts import structure as structure
from gdln_jax.tasks._contextual import contextual_classification as contextual_classification
from gdln_jax.tasks._hierarchy import hierarchy as hierarchy
from gdln_jax.tasks._hierarchy import hierarchy_features as hierarchy_features
from gdln_jax.tasks._images import transformed_images as transformed_images
from gdln_jax.tasks._multiview import multiview as multiview
from gdln_jax.tasks._recurrent import linear_rnn as linear_rnn
from gdln_jax.tasks._routing import route_matrix as route_matrix
from gdln_jax.tasks._routing import routing as routing
from gdln_jax.tasks._routing import spectral_gap as spectral_gap
from gdln_jax.tasks._sharing import pathway_sharing as pathway_sharing
from gdln_jax.tasks._task import Task as Task
from gdln_jax.tasks._tied import linear_ssl as linear_ssl
from gdln_jax.tasks._tied import tied_autoencoder as tied_autoencoder
from gdln_jax.tasks._xor import margin_xor as margin_xor
from gdln_jax.tasks._xor import xor as xor

__getattr__, __dir__ = _namespace(__name__)
