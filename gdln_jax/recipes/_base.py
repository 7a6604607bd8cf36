"""The base data's module, for recipes that have no folder yet."""

from gdln_jax.recipes._core.base import Base, load_base  # noqa: F401
