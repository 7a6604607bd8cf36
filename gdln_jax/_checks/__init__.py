"""What all units share: refusals, suggestions, pieces of HTML, and results as files.

Imports no JAX.
"""

from gdln_jax._checks.arguments import MAKE_A_MODEL as MAKE_A_MODEL
from gdln_jax._checks.arguments import Instead as Instead
from gdln_jax._checks.arguments import Mistakable as Mistakable
from gdln_jax._checks.arguments import check_choice as check_choice
from gdln_jax._checks.arguments import check_integer as check_integer
from gdln_jax._checks.arguments import check_keys as check_keys
from gdln_jax._checks.arguments import check_positive as check_positive
from gdln_jax._checks.arguments import check_positive_if_known as check_positive_if_known
from gdln_jax._checks.arguments import instead as instead
from gdln_jax._checks.arguments import is_concrete as is_concrete
from gdln_jax._checks.arguments import listed as listed
from gdln_jax._checks.names import Suggesting as Suggesting
from gdln_jax._checks.names import answering as answering
from gdln_jax._checks.names import missing as missing
from gdln_jax._checks.names import namespace as namespace
from gdln_jax._checks.names import suggest as suggest
from gdln_jax._checks.results import Result as Result
from gdln_jax._checks.results import dataset as dataset
from gdln_jax._checks.results import numbered as numbered
from gdln_jax._checks.results import variable_name as variable_name
from gdln_jax._checks.results import versions as versions
