"""Sweeps over several devices and several processes of one program."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import xarray as xr

import gdln_jax as gdln
from tests.test_sweep_store import CHECKOUT, python

pytestmark = pytest.mark.slow


def test_four_devices_give_the_bits_of_one_for_descent_and_1e_5_for_the_flow(tmp_path):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    child = python("devices", tmp_path, XLA_FLAGS=flags)
    out, error = child.communicate(timeout=200)
    assert child.returncode == 0, error
    found = json.loads(out.splitlines()[-1])
    assert found.pop("status") == [0, 0, 0, 5, 0]  # one bad point on a mesh of 2 x 2
    for name, one in found.items():
        assert one["ok"], name
        assert one["spread"] > 0.1, name  # there was something to compare
    assert found["train"]["bits"]
    assert found["explicit"]["bits"]  # explicit axes, the default of jax.make_mesh
    assert found["flow"]["relative"] < 1e-5


def places(**environment):
    """What each of two processes of one program is told of the other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    common = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": "2", **environment}
    return [{"JAX_PROCESS_ID": str(k), **common} for k in range(2)]


def pod(folder, **environment):
    return [python("pod", folder, **place) for place in places(**environment)]


def test_two_processes_of_one_program_equal_one(tmp_path):
    from tests import sweep_child as child

    for one in pod(tmp_path):
        _, error = one.communicate(timeout=200)
        assert one.returncode == 0, error
    alone = child.run(None, batch=6).drop_vars("reason")
    for number in range(2):
        there = xr.load_dataset(tmp_path / f"pod{number}.nc", engine="h5netcdf")
        xr.testing.assert_allclose(there, alone, rtol=1e-12)
    assert len(list((tmp_path / "store").glob("chunk-*.nc"))) == 54  # of 320 points, by 6


def test_when_a_process_dies_the_other_ends_with_an_error_and_the_store_stays(tmp_path):
    first, second = pod(tmp_path, HEARTBEAT="5")
    store = tmp_path / "store"
    deadline = time.monotonic() + 100
    while not list(store.glob("chunk-*.nc")) and time.monotonic() < deadline:
        time.sleep(0.01)
    second.kill()
    killed = time.monotonic()
    first.communicate(timeout=120)  # within two minutes
    second.communicate()
    assert first.returncode not in (0, None)
    assert time.monotonic() - killed < 60
    kept = list(store.glob("chunk-*.nc"))
    assert 1 <= len(kept) < 40
    for path in kept:
        assert hashlib.sha256(path.read_bytes()).hexdigest() in path.name
        assert (xr.load_dataset(path, engine="h5netcdf")["status"] == 0).all()


def test_the_command_as_two_processes_gives_the_numbers_of_one(tmp_path):
    # Too short a run for the recipe's checks: it ends with exit code 1 in both processes.
    options: dict[str, Any] = {"domains": "4", "seeds": "2", "width": "4", "duration": "1"}
    words = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "gdln_jax", "reproduce", "generalisation", "--distributed"]
    both = [
        subprocess.Popen(
            [*command, *words, "--out", str(tmp_path / str(k))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", **place},
        )
        for k, place in enumerate(places())
    ]  # fmt: skip
    for one in both:
        out, error = one.communicate(timeout=200)
        assert one.returncode == 1, error
        # Process 0 alone writes and prints.
        assert ("generalisation.nc" in out) == (one is both[0])
    assert not (tmp_path / "1" / "generalisation.nc").exists()
    there = xr.load_dataset(tmp_path / "0" / "generalisation.nc", engine="h5netcdf")
    alone = gdln.recipes.reproduce("generalisation", **options).data
    assert there.sizes == alone.sizes
    for name, values in alone.data_vars.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(there[name], values, rtol=1e-6, err_msg=str(name))
        else:
            np.testing.assert_array_equal(there[name], values, err_msg=str(name))
