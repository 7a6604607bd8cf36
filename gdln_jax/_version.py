"""The version of the package; `pyproject.toml` has the same."""

__version__ = "0.2.0"
