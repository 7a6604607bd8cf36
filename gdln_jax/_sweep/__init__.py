"""Many runs at once: `sweep(fn, axes, *, key)` calls `fn(key, **point)` at every point of a grid,
vmapped and sharded, and returns a labelled `xarray.Dataset`; it resumes from a store. Of the
physics only `_status` is used, for the status codes of trajectories.

Modules: `_axes` (grid and keys), `_static` (which axes fix shapes), `_spec` (what a store belongs
to), `_fingerprint` (what fn does, as a hash), `_program` (one compiled program), `_jaxpr` (what it
contains), `_memory` (its size), `_status` (what became of a point), `_store` and `_locks` (points
on disk), `_run` (what a store lacks, and computing it chunk by chunk), `_dataset`, `_progress`,
`_workers` (several processes), `_processes` (those of one program), `_sweep` (the function).
"""

from gdln_jax._sweep._locks import SweepLockedError as SweepLockedError
from gdln_jax._sweep._store import SweepStoreError as SweepStoreError
from gdln_jax._sweep._sweep import sweep as sweep
