"""Many runs at once: `sweep(fn, axes, *, key)` calls `fn(key, **point)` on a grid, vmapped and
sharded, and returns a labelled `xarray.Dataset`; it resumes from a store. It knows no physics.

Floor 5: may import from floors 0-4.
"""
