"""The function `sweep`: check what is asked, run it, label the result."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh
from jaxtyping import UInt32
from typing_extensions import TypeAliasType

from gdln_jax import _machine
from gdln_jax._checks import check_integer
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray
from gdln_jax._data.boundary import check_random_key
from gdln_jax._sweep import _progress, _workers
from gdln_jax._sweep._axes import Fn, check_names, read_axes
from gdln_jax._sweep._dataset import Labels, assemble
from gdln_jax._sweep._program import Block
from gdln_jax._sweep._run import Run
from gdln_jax._sweep._spec import key_text
from gdln_jax._sweep._static import check_arguments
from gdln_jax._sweep._status import OK, RAISED, REASONS

Key = TypeAliasType("Key", PRNGKeyArray | UInt32[jax.Array, "words"])
Axes = TypeAliasType("Axes", Mapping[str, object])
Units = TypeAliasType("Units", Mapping[str, str] | None)
Devices = TypeAliasType("Devices", Mesh | None)
Starter = TypeAliasType("Starter", _workers.Executor | None)
Folder = TypeAliasType("Folder", str | os.PathLike[str] | None)
Texts = TypeAliasType("Texts", Sequence[str])
Dimensions = TypeAliasType("Dimensions", Mapping[str, str | Sequence[str]] | None)
Coordinates = TypeAliasType("Coordinates", Mapping[str, ArrayLike | Sequence | xr.DataArray] | None)

# The one generator of JAX whose numbers for a key do not depend on the other keys of a batch.
_GENERATOR = "threefry2x32"
_log = logging.getLogger("gdln_jax.sweep")


def sweep(
    fn: Fn,
    axes: Axes,
    *,
    key: Key,
    mesh: Devices = None,
    store: Folder = None,
    batch: int | None = None,
    progress: _progress.Progress = True,
    static: Texts = (),
    key_axes: Texts | None = None,
    dims: Dimensions = None,
    coords: Coordinates = None,
    units: Units = None,
    shard: tuple[int, int] | None = None,
    workers: int | None = None,
    executor: Starter = None,
) -> xr.Dataset:
    """Call `fn(key, **point)` at every point of a grid, as few compiled programs.

    Args:
        fn: takes a key and one keyword argument per axis; returns a pytree of real arrays. It is
            traced, so it may train, solve and measure, but not write files.
        axes: name -> 1-D values (numbers, flags or strings), in the order of the dimensions. A
            `DataArray` hands its attributes (units) on. A value that JAX would change beyond
            rounding (2**40 without x64) is refused. Strings, and whole numbers or flags with which
            fn cannot be traced (M, K, a width), are *static*: fn sees Python values, and there is
            one program per choice of them. All other axes are mapped by `vmap` inside a program.
        key: every point gets its own key, made from this one and the values of its coordinates:
            the same in any order, chunking, mesh, shard, and after adding values. A seed is an
            axis. Of the generators only JAX's default, threefry2x32, keeps this promise; others
            are refused.
        mesh: split the points of a batch over the devices of this mesh (`jax.shard_map`). Under
            `jax.distributed` default all devices of all processes, and of a CPU after
            `gdln.configure(cpu_devices=2)` those. Results do not depend on it up to rounding.
        store: folder in which finished points are kept (`~` is the home); a second call resumes
            from there, and so does one whose axes have more, fewer or reordered values. It logs
            how they differ. A store that has all points is read, and nothing is written to it.
        batch: points per chunk, run at once. Default: a chunk is all points of a program, or with
            `store` a sixteenth (but not under 16), run in as many equal batches as fit into 80 % of
            the free memory of the device (25 % of that of the host), by the compiler's account of
            the program. On a CPU a batch is also so small that its loops stay in the caches: the
            arrays of a step of the largest loop in fn, as traced, take at most 2 MiB; without a
            mesh as many batches as there are cores run at the same time. The size depends on shapes
            only, not on the machine.
        progress: a bar on the error stream if that is a terminal; or a function
            (fraction done, text) -> None.
        static: names of further axes to be static.
        key_axes: the axes that keys depend on, default all. With `("seed",)` all points of one
            seed start from the same random numbers.
        dims: variable -> names of the dimensions of what fn returns.
        coords: coordinates of those dimensions.
        units: units of axes, coordinates and variables.
        shard: (i, n), do only the chunks k with k mod n = i; needs `store`. For n processes under
            any scheduler. What other shards have not done yet has status 6.
        workers: number of processes that share the work through `store`. fn must stand in a module.
        executor: starts the workers (anything with `submit`, such as `submitit.AutoExecutor`);
            default processes on this machine, which end with this one.

    Returns:
        A data set with the axes as coordinates. Variables are named by their path in what fn
        returns (`value` for a lone array), with dimensions (*axes, *own); bfloat16 and other types
        that netCDF lacks come as the next wider one, float32 or int8. `status` is per point 0 ok,
        1 diverged, 2 solver gave up, 3 a value is not finite, 4 fn reported another status, 5 fn
        raised, 6 not computed yet; `reason` is the message that belongs to it. A failed point never
        ends the sweep, and what failed is NaN. Attributes tell where the numbers come from.

    Raises:
        ValueError: for axes, labels, keys or an fn that cannot work, naming the argument or axis.
        SweepStoreError: for a store of another sweep or code (with both hashes), one that cannot be
            written to, or a full disk.
        SweepLockedError: for a store in use, naming the process.
        RuntimeError: if fn raises at every point, or workers do not end well.
    """
    grid_axes = read_axes(axes)
    check_arguments(fn, grid_axes)
    key = _checked_key(key)
    key_axes = [axis.name for axis in grid_axes] if key_axes is None else key_axes
    key_axes = check_names(key_axes, grid_axes, "key_axes")
    static = check_names(static, grid_axes, "static")
    batch = None if batch is None else check_integer(batch, "batch", minimum=1)
    _check_sharing(store, shard, workers, executor, mesh)
    labels = Labels.checked(dims, coords, units)
    run = Run(fn, grid_axes, key, key_axes, static, batch, _folder(store), shard, mesh)
    if labels.dims:  # refused before anything runs
        for name, shape in run.shapes().items():
            labels.inner(name, len(shape.shape))
    run.log_changes()
    if workers is not None and run.missing:
        _workers.work_off(run, workers, executor)
    blocks = run.compute(progress)
    _refuse_failures(blocks, run.errors)
    result = assemble(run.grid, blocks, labels, _provenance(run))
    _log_failures(result)
    return result


def _folder(store: str | os.PathLike[str] | None) -> Path | None:
    try:
        return None if store is None else Path(store).expanduser()
    except (TypeError, RuntimeError) as error:  # no path; a user who has no home
        raise ValueError(f"store is {store!r} ({error}); pass the path of a folder.") from error


def _checked_key(key: jax.Array) -> jax.Array:
    check_random_key(key)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    key = key if typed else jax.random.wrap_key_data(key)
    generator = str(jax.random.key_impl(key))
    if generator != _GENERATOR:
        raise ValueError(
            f"key is a key of the generator {generator!r}, whose random numbers under vmap depend "
            "on the points that are computed together; pass "
            f"jax.random.key(seed, impl={_GENERATOR!r})."
        )
    return key


def _check_sharing(
    store: object, shard: object, workers: object, executor: object, mesh: object
) -> None:
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ValueError(
            f"mesh is {mesh!r}; pass a jax.sharding.Mesh, such as jax.make_mesh((4,), ('run',))."
        )
    if workers is not None:
        check_integer(workers, "workers", minimum=1)
        if shard is not None or mesh is not None:
            raise ValueError("workers= shares out the shards itself; leave out shard= and mesh=.")
    elif executor is not None:
        raise ValueError("executor= needs workers=, the number of jobs to submit.")
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ValueError(
            f"executor is {executor!r}; pass an object with a method submit(function, *arguments), "
            "such as submitit.AutoExecutor, or leave it out for processes on this machine."
        )
    if shard is not None:
        pair = shard if isinstance(shard, tuple | list) and len(shard) == 2 else (0, 0)
        if not all(isinstance(n, int) for n in pair) or not 0 <= pair[0] < pair[1]:
            raise ValueError(f"shard is {shard!r}; pass (i, n) with 0 <= i < n.")
    if store is None and (shard is not None or workers is not None):
        raise ValueError("several processes share their work through store=DIR; pass one.")


def _refuse_failures(blocks: Sequence[Block], errors: list[Exception]) -> None:
    if blocks and all(np.all(block.status == RAISED) for block in blocks):
        message = blocks[0].messages[0]
        cause = errors[0] if errors else None
        raise RuntimeError(f"fn raised at every point of the sweep: {message}") from cause


def _provenance(run: Run) -> dict[str, str]:
    return {
        "fn": str(run.spec.question["fn"]),
        "sweep_spec": run.spec.hash,
        "sweep_code": run.spec.code_hash,
        "key": f"{jax.random.key_impl(run.key)} {key_text(run.key)}",
        "key_axes": " ".join(run.key_axes),
        "versions": json.dumps(_machine.versions()),
        "machine": json.dumps(_machine.machine()),
        "created": _machine.moment(),
    }


def _log_failures(result: xr.Dataset) -> None:
    """Log failed points, which averages that skip NaN would hide."""
    codes, counts = np.unique(result["status"].values, return_counts=True)
    failed = {int(code): int(n) for code, n in zip(codes, counts, strict=True) if code != OK}
    result.attrs["failed_points"] = sum(failed.values())
    if failed:
        text = "%d of %d points have no sound result (%s): look at `status` before averaging."
        kinds = ", ".join(f"{n} x {REASONS[code]}" for code, n in failed.items())
        _log.warning(text, sum(failed.values()), result["status"].size, kinds)
