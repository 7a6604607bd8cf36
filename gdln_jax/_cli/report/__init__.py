"""All figures together: run every recipe, say how each ended, and show them on one page.

A recipe leaves `NAME.json` and its picture in a folder of its own; a page is made from these files
alone, so that it can be made again, and be read while recipes still run. Imports nothing heavy.
"""

from gdln_jax._cli.report._all import foreign_files as foreign_files
from gdln_jax._cli.report._all import reproduce_all as reproduce_all
from gdln_jax._cli.report._outcome import Outcome as Outcome
from gdln_jax._cli.report._outcome import State as State
from gdln_jax._cli.report._outcome import outcome as outcome
from gdln_jax._cli.report._outcome import outcomes as outcomes
from gdln_jax._cli.report._pages import INDEX as INDEX
from gdln_jax._cli.report._pages import duration as duration
from gdln_jax._cli.report._pages import foreign_pages as foreign_pages
from gdln_jax._cli.report._pages import index_files as index_files
from gdln_jax._cli.report._pages import write_index as write_index
from gdln_jax._cli.report._pages import write_report as write_report
