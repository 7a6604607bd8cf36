"""Real images in routed networks (N Sec. 5, App. D): data, transformations, training, accuracy.

`load` an image set, `make_transforms` the M views of it, draw a `RoutedNetwork` and
`train_images`; `tasks.transformed_images` gives the same as a graph with data.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.images._evaluate import route_accuracy as route_accuracy
from gdln_jax.images._evaluate import trained_and_untrained as trained_and_untrained
from gdln_jax.images._features import ConvEncoder as ConvEncoder
from gdln_jax.images._features import train_encoder as train_encoder
from gdln_jax.images._network import RoutedNetwork as RoutedNetwork
from gdln_jax.images._network import from_gated as from_gated
from gdln_jax.images._network import to_gated as to_gated
from gdln_jax.images._sets import ImageSet as ImageSet
from gdln_jax.images._sets import load as load
from gdln_jax.images._stability import stable_rate as stable_rate
from gdln_jax.images._training import PAPER as PAPER
from gdln_jax.images._training import Run as Run
from gdln_jax.images._training import Settings as Settings
from gdln_jax.images._training import train_images as train_images
from gdln_jax.images._transforms import Transforms as Transforms
from gdln_jax.images._transforms import linear_maps as linear_maps
from gdln_jax.images._transforms import make_transforms as make_transforms

__getattr__, __dir__ = _namespace(__name__)
