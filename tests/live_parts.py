"""Settings of the live pages, whose curves are compared with the package's.

A page holds them as text for the browser. Private to `gdln_jax._live`, so imported here only.
"""

from gdln_jax._live import RECIPES, families, own, recipe_page, setup

FAMILIES, Setup, parameter_data = families.FAMILIES, setup.Setup, setup.parameter_data

__all__ = ["FAMILIES", "RECIPES", "Setup", "own", "parameter_data", "recipe_page"]
