"""Pictures of runs in one call, of arrays on given axes, in one style; and films (`animate`).

Theory dashed, simulation solid; trained blue, untrained orange, shared green; medians with bands,
single seeds thin; time t/τ and loss L.
"""

from gdln_jax._checks import namespace as _namespace
from gdln_jax.plot._animate import animate as animate
from gdln_jax.plot._architecture import architecture as architecture
from gdln_jax.plot._curves import curve as curve
from gdln_jax.plot._curves import loss_curves as loss_curves
from gdln_jax.plot._curves import mode_curves as mode_curves
from gdln_jax.plot._curves import runs as runs
from gdln_jax.plot._differentiation import differentiation as differentiation
from gdln_jax.plot._explanation import explanation as explanation
from gdln_jax.plot._explore import Explorer as Explorer
from gdln_jax.plot._explore import explore as explore
from gdln_jax.plot._labels import label_ends as label_ends
from gdln_jax.plot._learning import learning as learning
from gdln_jax.plot._learning import modes as modes
from gdln_jax.plot._maps import matrix_panels as matrix_panels
from gdln_jax.plot._maps import route_pattern as route_pattern
from gdln_jax.plot._maps import similarity as similarity
from gdln_jax.plot._panels import corner_text as corner_text
from gdln_jax.plot._panels import legend_above as legend_above
from gdln_jax.plot._panels import log_ticks as log_ticks
from gdln_jax.plot._staircase import staircase as staircase
from gdln_jax.plot._style import COLOURS as COLOURS
from gdln_jax.plot._style import DOUBLE as DOUBLE
from gdln_jax.plot._style import SINGLE as SINGLE
from gdln_jax.plot._style import figure as figure
from gdln_jax.plot._style import mode_colours as mode_colours
from gdln_jax.plot._style import panel_label as panel_label
from gdln_jax.plot._style import style as style
from gdln_jax.plot._text import check_text as check_text

__getattr__, __dir__ = _namespace(__name__)
