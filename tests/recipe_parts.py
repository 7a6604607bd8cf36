"""What recipes share beside their declarations, for tests of recipes.

It is private to them (`gdln_jax.recipes._core`), so that it is imported here only.
"""

from gdln_jax.recipes._core import context_runs, ensembles, route_maps, spread

__all__ = ["context_runs", "ensembles", "route_maps", "spread"]
