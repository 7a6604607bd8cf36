"""Settings of the live pages, whose curves are compared with the package's.

A page holds them as text for the browser. Private to `gdln_jax._live`, so imported here only.
"""

from gdln_jax._live import RECIPES, families, own, recipe_page, setup

FAMILIES, parameter_data = families.FAMILIES, setup.parameter_data
Setup = setup.Setup

__all__ = ["FAMILIES", "RECIPES", "Setup", "own", "parameter_data", "recipe_page"]
