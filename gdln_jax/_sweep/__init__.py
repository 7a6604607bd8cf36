"""Many runs at once: `sweep(fn, axes, *, key)` calls `fn(key, **point)` at every point of a grid,
vmapped and sharded, and returns a labelled `xarray.Dataset`; it resumes from a store. It knows no
physics: only `_status` shares the status codes of trajectories.

Modules: `_axes` (grid and keys), `_static` (which axes fix shapes), `_spec` (what a store belongs
to), `_fingerprint` (what fn does, as a hash), `_program` (one compiled program), `_memory` (its
size), `_status` (what became of a point), `_store` and `_locks` (points on disk), `_plan` (which
chunks, one after another), `_run` (what a store lacks), `_dataset`, `_progress`, `_workers`
(several processes), `_sweep` (the function). Layer 5: may import from layers 0-4.
"""

from gdln_jax._sweep._locks import SweepLockedError as SweepLockedError
from gdln_jax._sweep._store import SweepStoreError as SweepStoreError
from gdln_jax._sweep._sweep import sweep as sweep
