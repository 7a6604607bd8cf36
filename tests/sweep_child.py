"""Sweeps in processes of their own: `python -m tests.sweep_child WHAT FOLDER`; see test_sweep_*.

`killed` forks the sweeps that are to be killed from a process that has imported everything and used
no device yet, since a fresh interpreter would take longer than the sweep.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import h5netcdf  # noqa: F401  before the forks, not in each of them
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray  # noqa: F401

import gdln_jax as gdln

KEY = jax.random.PRNGKey  # made after the fork: a key is on a device
AXES = {"size": [3, 4], "seed": list(range(80)), "scale": [0.5, 1.0]}


def fn(key, size, seed, scale):
    """Some milliseconds of matrix products per point."""
    w = scale * jax.random.normal(key, (size, size)) / size
    w = jax.lax.fori_loop(0, 3000, lambda _, v: jnp.tanh(v @ w + 0.1), w)
    return {"w": w, "seed_seen": seed}


def run(store, **options):
    options = {"progress": False, "batch": 4, "static": ("size",), **options}
    return gdln.sweep(fn, AXES, key=KEY(3), store=store, **options)


def train(key, seed, scale):
    """Descent of a small chain."""
    task = gdln.tasks.hierarchy()
    net = gdln.GatedNetwork.init(task.graph, gdln.init.normal(scale), key=key)
    done = gdln.train(net, task.data, optimizer=optax.sgd(0.05), steps=60, keep_models=False)
    return {"weights": done.final.stacks, "losses": done.losses, "status": done.status}


def flow(key, seed, scale):
    """The same by the flow."""
    task = gdln.tasks.hierarchy()
    net = gdln.GatedNetwork.init(task.graph, gdln.init.normal(scale), key=key)
    done = gdln.gradient_flow(
        net, task.data, jnp.linspace(0.0, 2.0, 5), keep_models=False, throw=False
    )
    return {"losses": done.losses, "status": done.status}


def scaled(key, seed, scale):
    return {"losses": scale * jax.random.normal(key, (3,)) + seed}


SMALL = {"seed": list(range(5)), "scale": [0.1, 0.3]}


def forked(body):
    """The number of a child that does `body`."""
    child = os.fork()
    if child:
        return child
    # Where the tests run in the background, SIGINT is ignored by all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        body()
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def chunks(folder):
    return {p.name: p.stat().st_ino for p in Path(folder).glob("chunk-*.nc")}


def killed(folder):
    """SIGKILL three times at random moments, then SIGINT, then to the end."""
    rng, story = np.random.default_rng(int(time.time_ns()) % 2**32), []
    store = folder / "store"
    for _ in range(3):
        child = forked(lambda: run(store))
        before = set(chunks(store))
        # A moment between the first new chunk and a few chunks later.
        while chunks(store).keys() <= before and not os.waitpid(child, os.WNOHANG)[0]:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.03))
        story.append(_end(child, signal.SIGKILL, store, before))
    before = set(chunks(store))
    child = forked(lambda: run(store))
    while chunks(store).keys() <= before and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.002)
    story.append(_end(child, signal.SIGINT, store, before))
    left = sorted(p.name for p in store.glob(".*tmp*"))
    kept = chunks(store)
    resumed = run(store)
    undisturbed = run(folder / "undisturbed")
    same = resumed.drop_vars("reason").equals(undisturbed.drop_vars("reason"))
    untouched = all(chunks(store).get(name) == inode for name, inode in kept.items())
    print(json.dumps({
        "story": story, "same": same, "untouched": untouched, "kept": len(kept), "left": left,
        "after": sorted(p.name for p in store.glob(".*tmp*")), "chunks": len(chunks(store)),
        "names": sorted(chunks(store)) == sorted(chunks(folder / "undisturbed")),
    }))  # fmt: skip


def _end(child, number, store, before):
    try:
        os.kill(child, number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        code = 0
    return {"code": code, "new": len(set(chunks(store)) - before)}


def shared(folder):
    """By two workers, which are at it for a while."""
    from tests import sweep_child  # fn is to stand in a module, not in this one as a script

    signal.signal(signal.SIGINT, signal.default_int_handler)
    axes = {**AXES, "seed": list(range(2000))}
    options = {"progress": False, "batch": 4, "static": ("size",), "workers": 2}
    gdln.sweep(sweep_child.fn, axes, key=KEY(3), store=folder / "store", **options)


def devices(folder):
    """The same sweeps on one device and split over four."""
    del folder
    assert len(jax.devices()) == 4
    out = {}
    for name, body, kind in (
        ("train", train, "Auto"), ("flow", flow, "Auto"), ("explicit", scaled, "Explicit"),
    ):  # fmt: skip
        mesh = jax.make_mesh((4,), ("run",), axis_types=(getattr(jax.sharding.AxisType, kind),))
        one = gdln.sweep(body, SMALL, key=KEY(1), progress=False)
        many = gdln.sweep(body, SMALL, key=KEY(1), progress=False, mesh=mesh)
        out[name] = {
            "bits": all(np.array_equal(one[v].values, many[v].values) for v in one.data_vars),
            "relative": float(np.max(np.abs(many["losses"] / one["losses"] - 1))),
            "ok": bool((many["status"] == 0).all()),
            "spread": float(one["losses"].std()),
        }
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    axes = {"x": [0.0, 1.0, 2.0, 3.0, 1.5]}
    found = gdln.sweep(checked, axes, key=KEY(1), progress=False, mesh=mesh)
    out["status"] = found["status"].values.tolist()
    print(json.dumps(out))


def checked(key, x):
    import equinox as eqx

    return {"same": eqx.error_if(x, x > 2.5, "x is above 2.5", on_error="raise")}


def pod(folder):
    """One of several processes of one program, joined as docs/sweep.md says."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
        heartbeat_timeout_seconds=int(os.environ.get("HEARTBEAT", "30")),
    )
    assert jax.process_count() == 2
    assert len(jax.devices()) == 2
    out = run(folder / "store", batch=6)
    number = jax.process_index()
    out.drop_vars("reason").to_netcdf(folder / f"pod{number}.nc", engine="h5netcdf")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    globals()[sys.argv[1]](Path(sys.argv[2]))
