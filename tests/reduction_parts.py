"""What results of a reduction do not show: what its checks find in wrong input, and its programs.

A certificate and a search for classes are right for every task; given frames and gradients that no
task has, they must say so. Two forms of one loss show in no result either. Private to
`gdln_jax._reduction`, so that they are imported here only.
"""

from typing import Any

from gdln_jax._reduction import certificate, classes, flow, loss

__all__ = ["certificate", "classes", "compiled_solves", "loss"]


def compiled_solves() -> int:
    """How many programs there are that solve a reduction."""
    solve: Any = flow._solve
    return solve._cached._cache_size()
