"""The modules of the command, for tests that stay in this process.

`gdln_jax.__main__` ends the process, so that there is no public way in; imported here only.
"""

from gdln_jax._cli import drawing, main, report

__all__ = ["drawing", "main", "report"]
