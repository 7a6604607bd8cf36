"""Sweeps with a store: killed and resumed, refused, damaged, full, shared by shards and workers."""

import errno
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gdln_jax as gdln
from gdln_jax.sweep import _store
from gdln_jax.sweep._locks import locked

CHECKOUT = Path(__file__).resolve().parent.parent
KEY = jax.random.key(1)
AXES = {"seed": list(range(7)), "scale": [1.0, 2.0]}


def fn(key, seed, scale):
    return {"w": scale * jax.random.normal(key, (2,)), "flag": seed > 2, "whole": seed}


def run(store, **options):
    return gdln.sweep(fn, AXES, key=KEY, store=store, progress=False, **{"batch": 4, **options})


def python(*words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sweep_child", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def unstored():
    return run(None)


def test_a_store_holds_the_same_data_and_a_second_call_computes_nothing(tmp_path, unstored):
    assert run(tmp_path / "s").equals(unstored)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "s").glob("chunk-*.nc")}
    assert len(before) == 4
    told = []
    again = gdln.sweep(
        fn, AXES, key=KEY, store=tmp_path / "s", progress=lambda *a: told.append(a[0])
    )
    assert again.equals(unstored)
    assert again["flag"].dtype == bool
    assert again["whole"].dtype == np.int64
    assert told == [1.0]
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "s").glob("chunk-*.nc")} == before


@pytest.mark.slow
def test_ten_kills_and_an_interruption_lose_only_the_unfinished_chunk(tmp_path):
    child = python("killed", tmp_path)
    out, error = child.communicate(timeout=200)
    assert child.returncode == 0, error
    found = json.loads(out.splitlines()[-1])
    assert [one["code"] for one in found["story"]] == [-9] * 10 + [130]
    assert all(one["new"] >= 1 for one in found["story"])
    assert found["kept"] < found["chunks"] == 160  # something was left to do
    assert found["same"]
    assert found["names"]  # equal content, to the bit
    assert found["untouched"]  # no finished chunk was written again
    assert found["after"] == []


@pytest.fixture
def heeded():
    """SIGINT as in a terminal; where the tests run in the background it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_waits_for_the_chunk_and_a_second_one_does_not(tmp_path, unstored):
    class Pressing:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    def press(fraction, text):
        """Ctrl-C where Python would lose the exception: in a destructor."""
        if fraction == 0:
            Pressing()

    with pytest.raises(KeyboardInterrupt):
        gdln.sweep(fn, AXES, key=KEY, store=tmp_path / "s", batch=4, progress=press)
    assert len(list((tmp_path / "s").glob("chunk-*.nc"))) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert run(tmp_path / "s").equals(unstored)

    def press_twice(fraction, text):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second Ctrl-C was lost")

    with pytest.raises(KeyboardInterrupt):
        gdln.sweep(fn, AXES, key=KEY, progress=press_twice)


def test_a_store_of_another_question_or_code_is_refused_with_both_hashes(tmp_path, monkeypatch):
    first = run(tmp_path)
    axes = {**AXES, "scale": [1.0, 2.0, 3.0]}
    with pytest.raises(gdln.SweepStoreError, match=r"another spec.*axes of scale") as caught:
        gdln.sweep(fn, axes, key=KEY, store=tmp_path, progress=False)
    other = gdln.sweep(fn, axes, key=KEY, progress=False)
    assert first.attrs["sweep_spec"] in str(caught.value)
    assert other.attrs["sweep_spec"] in str(caught.value)
    with pytest.raises(gdln.SweepStoreError, match=r"another spec.*key"):
        gdln.sweep(fn, AXES, key=jax.random.key(2), store=tmp_path, progress=False)
    monkeypatch.setattr(fn, "__code__", (lambda _, seed, scale: {"w": scale * seed}).__code__)
    changed = run(None)
    with pytest.raises(gdln.SweepStoreError, match=r"another code version.*fn ") as caught:
        run(tmp_path)
    assert first.attrs["sweep_code"] in str(caught.value)
    assert changed.attrs["sweep_code"] in str(caught.value)


TASK = gdln.tasks.hierarchy()


def learner(key, x):
    net = gdln.GatedNetwork.init(TASK.graph, gdln.init.normal(x), key=key)
    return gdln.mse(net, TASK.data)


def test_the_code_hash_sees_the_data_that_fn_names(monkeypatch):
    def code():
        return gdln.sweep(learner, {"x": [1.0]}, key=KEY, progress=False).attrs["sweep_code"]

    first = code()
    assert code() == first
    monkeypatch.setitem(globals(), "TASK", gdln.tasks.hierarchy())
    assert code() == first
    monkeypatch.setitem(globals(), "TASK", gdln.tasks.routing(2, 1, width=4))
    assert code() != first


def test_the_code_hash_sees_constants_and_closures():
    def hashes(number, array):
        def inner(key, x):
            return x * number + jnp.sum(array)

        return gdln.sweep(inner, {"x": [1.0]}, key=KEY, progress=False).attrs["sweep_code"]

    ones = np.ones(2)
    assert hashes(1, ones) == hashes(1, ones.copy())
    assert len({hashes(1, ones), hashes(2, ones), hashes(1, 2 * ones)}) == 3


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_chunk_is_found_and_computed_again(tmp_path, unstored, damage):
    run(tmp_path)
    victim = sorted(tmp_path.glob("chunk-*.nc"))[1]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes({"cut": content[:-100], "flipped": content, "empty": b""}[damage])
    assert run(tmp_path).equals(unstored)
    assert len(list(tmp_path.glob("chunk-*.nc"))) == 4


def test_a_full_disk_says_so_and_leaves_what_is_finished(tmp_path, unstored, monkeypatch):
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) > 6:  # the layout and two chunks, each with its folder
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(_store.os, "fsync", full)
        with pytest.raises(gdln.SweepStoreError, match=r"the disk is full\. 2 chunks are stored"):
            run(tmp_path)
    assert list(tmp_path.glob("*.tmp")) == []
    assert len(list(tmp_path.glob("chunk-*.nc"))) == 2
    assert run(tmp_path).equals(unstored)


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(gdln.SweepStoreError, match=r"thesis\.tex"):
        run(tmp_path)
    with pytest.raises(gdln.SweepStoreError, match="is a file"):
        run(tmp_path / "thesis.tex")


# ------------------------------------------------------------------ who may write
def test_a_second_sweep_is_refused_with_the_process_that_is_at_work(tmp_path):
    with locked(tmp_path, None):
        for shard in (None, (0, 2)):
            with pytest.raises(gdln.SweepLockedError, match=f"process {os.getpid()} on"):
                run(tmp_path, shard=shard)
    with locked(tmp_path, (0, 2)):
        with pytest.raises(gdln.SweepLockedError, match=f"process {os.getpid()}"):
            run(tmp_path)
        with pytest.raises(gdln.SweepLockedError, match=f"process {os.getpid()}"):
            run(tmp_path, shard=(0, 2))
        with pytest.raises(gdln.SweepLockedError, match="one of 3 shards"):
            run(tmp_path, shard=(1, 3))
        run(tmp_path, shard=(1, 2))
    # What a dead process has left stops nobody: the lock went with it.
    (tmp_path / "sweep.lock").write_text("process 1 on elsewhere")
    run(tmp_path)


def test_shards_share_a_store_and_what_is_missing_says_so(tmp_path, unstored):
    half = run(tmp_path, shard=(1, 2))
    flat = half["status"].values.reshape(-1)
    np.testing.assert_array_equal(flat, [6] * 4 + [0] * 4 + [6] * 4 + [0] * 2)
    assert half["reason"][0, 0] == "not computed yet"
    assert np.isnan(half["whole"][0, 0])
    assert half.attrs["failed_points"] == 8
    whole = run(tmp_path, shard=(0, 2))
    assert whole.equals(unstored)
    assert run(tmp_path).equals(unstored)


# ------------------------------------------------------------------ several processes
@pytest.mark.slow
def test_workers_of_this_machine_and_of_submitit_do_the_same(tmp_path):
    submitit = pytest.importorskip("submitit")
    from tests import sweep_child as child

    options = {"key": jax.random.key(3), "progress": False, "batch": 16}
    axes = {"seed": list(range(8)), "scale": [1.0, 2.0, 4.0, 8.0]}
    alone = gdln.sweep(child.scaled, axes, **options)
    store = tmp_path / "processes"
    assert gdln.sweep(child.scaled, axes, store=store, workers=2, **options).equals(alone)
    assert len(list(store.glob("shard-*-of-2.lock"))) == 2
    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="local")
    executor.update_parameters(timeout_min=3)
    store = tmp_path / "jobs store"
    again = gdln.sweep(child.scaled, axes, store=store, workers=1, executor=executor, **options)
    assert again.equals(alone)
    assert len(list(store.glob("chunk-*.nc"))) == 2


def test_an_fn_that_cannot_be_sent_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at the top of a module"):
        gdln.sweep(lambda _, x: x, {"x": [1.0]}, key=KEY, store=tmp_path, workers=1)


def test_what_a_script_computed_is_found_by_who_imports_it(tmp_path, monkeypatch):
    script = tmp_path / "a_study.py"
    script.write_text(
        "import jax, gdln_jax as gdln\n\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "jax.config.update('jax_default_matmul_precision', 'highest')\n\n"
        "def double(key, x):\n    return 2 * x\n\n"
        "def study():\n"
        "    options = {'key': jax.random.key(0), 'store': 'kept', 'progress': False}\n"
        "    return gdln.sweep(double, {'x': [1.0, 2.0]}, **options)\n\n"
        "if __name__ == '__main__':\n    study()\n"
    )
    settings = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, script.name], cwd=tmp_path, env=settings, check=True)
    written = [p.stat().st_mtime_ns for p in (tmp_path / "kept").glob("chunk-*.nc")]
    assert len(written) == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        found = importlib.import_module("a_study").study()
    finally:
        sys.modules.pop("a_study", None)
    assert found["value"].values.tolist() == [2.0, 4.0]
    assert [p.stat().st_mtime_ns for p in (tmp_path / "kept").glob("chunk-*.nc")] == written
