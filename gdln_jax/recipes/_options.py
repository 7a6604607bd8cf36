"""The options' module, for recipes that have no folder yet."""

from gdln_jax.recipes._core.options import OptionError, closest  # noqa: F401
