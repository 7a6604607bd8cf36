"""Parts of a sweep that its results do not show.

Memory that a device does not have, programs that are not made, locks that another process holds,
and fingerprints of code. Private to `gdln_jax._sweep`, so that they are imported here only.
"""

from gdln_jax._sweep import (
    _axes,
    _fingerprint,
    _locks,
    _memory,
    _program,
    _static,
    _status,
)

__all__ = ["_axes", "_fingerprint", "_locks", "_memory", "_program", "_static", "_status"]
