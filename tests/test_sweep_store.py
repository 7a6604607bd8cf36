"""Sweeps with a store: killed and resumed, refused, damaged, full, shared by shards and workers."""

import contextlib
import errno
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep_parts import _locks, _program

import gdln_jax as gdln

# Locks that another process holds, and what is computed again.

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
def test_kills_and_an_interruption_lose_only_the_unfinished_chunk(tmp_path):
    child = python("killed", tmp_path)
    out, error = child.communicate(timeout=200)
    assert child.returncode == 0, error
    found = json.loads(out.splitlines()[-1])
    assert [one["code"] for one in found["story"]] == [-9] * 3 + [130]
    assert all(one["new"] >= 1 for one in found["story"])
    assert found["kept"] < found["chunks"] == 80  # something was left to do
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
    axes = {**AXES, "scale": [1, 2]}
    with pytest.raises(
        gdln.SweepStoreError, match=r"another spec.*axis scale float64 -> int64"
    ) as caught:
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
        patch.setattr(os, "fsync", full)
        with pytest.raises(gdln.SweepStoreError, match=r"the disk is full\. 2 chunks are stored"):
            run(tmp_path)
    assert list(tmp_path.glob(".*tmp*")) == []
    assert len(list(tmp_path.glob("chunk-*.nc"))) == 2
    assert run(tmp_path).equals(unstored)


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(gdln.SweepStoreError, match=r"thesis\.tex"):
        run(tmp_path)
    with pytest.raises(gdln.SweepStoreError, match="is a file"):
        run(tmp_path / "thesis.tex")


def test_a_store_of_an_older_form_is_refused_with_what_reads_it(tmp_path):
    run(tmp_path)
    layout = json.loads((tmp_path / "layout.json").read_text())
    layout.pop("format")
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    with pytest.raises(gdln.SweepStoreError, match=r"by gdln_jax \S+\. Continue with that version"):
        run(tmp_path)


def test_a_store_made_under_other_settings_of_jax_is_refused(tmp_path):
    run(tmp_path)
    with (
        jax.threefry_partitionable(False),
        pytest.raises(gdln.SweepStoreError, match="jax_threefry_partitionable True -> False"),
    ):
        run(tmp_path)


# ------------------------------------------------------------------ axes that grow and shrink
@pytest.fixture
def computed(monkeypatch):
    """The points that are computed, by their seeds."""
    found, compute = [], _program.Program.__call__

    def note(self, numbers):
        found.extend(self.grid.columns(numbers)["seed"].tolist())
        return compute(self, numbers)

    monkeypatch.setattr(_program.Program, "__call__", note)
    return found


def study(seeds, scales=(1.0, 2.0), store=None, **options):
    options = {"key": KEY, "progress": False, "batch": 4, "store": store, **options}
    return gdln.sweep(fn, {"seed": seeds, "scale": scales}, **options)


def test_points_that_are_in_the_store_are_used_whatever_axes_ask_for_them(
    tmp_path, computed, caplog
):
    study(range(10), store=tmp_path)
    assert len(computed) == 20
    before = {p: p.read_bytes() for p in tmp_path.glob("chunk-*.nc")}
    del computed[:]
    grown = study(range(12), store=tmp_path)
    assert computed == [10, 10, 11, 11]
    assert "axis 'seed' gains 10, 11. 20 of 24 points are there, 4 are left" in caplog.text
    assert grown.equals(study(range(12)))
    assert all(path.read_bytes() == content for path, content in before.items())
    del computed[:]
    caplog.clear()
    assert study(range(12), store=tmp_path).equals(grown)
    assert caplog.text == ""
    less = study([8, 3], (2.0,), store=tmp_path)
    assert less.equals(grown.sel(seed=[8, 3], scale=[2.0]))
    assert "axis 'seed' loses 0, 1, 2, 4, ... (10 values); axis 'seed' is in ano" in caplog.text
    assert computed == []


def test_the_order_of_the_axes_and_of_their_values_is_free(tmp_path, computed):
    first = study(range(7), store=tmp_path)
    del computed[:]
    turned = study(range(6, -1, -1), (2.0, 1.0), store=tmp_path)
    assert turned.equals(first.sel(seed=range(6, -1, -1), scale=[2.0, 1.0]))
    # Axes in another order number the points in another way: 0.1.0 then mixed up their results.
    axes = {"scale": [1.0, 2.0], "seed": range(7)}
    other = gdln.sweep(fn, axes, key=KEY, store=tmp_path, progress=False)
    assert other.equals(first.transpose("scale", "seed", ...))
    assert computed == []


def test_an_unfinished_store_is_asked_for_less(tmp_path, computed):
    study(range(10), store=tmp_path, shard=(0, 2))  # chunks of 4 points: every other one
    assert sorted(set(computed)) == [0, 1, 4, 5, 8, 9]
    del computed[:]
    assert study([1, 2, 3, 4], store=tmp_path).equals(study([1, 2, 3, 4]))
    assert computed[:4] == [2, 2, 3, 3]


def named(key, seed, name):
    return {"n": len(name) + seed, "w": jax.random.normal(key)}


def test_a_static_axis_grows(tmp_path, computed):
    def ask(names, store):
        axes = {"seed": [0, 1], "name": names}
        return gdln.sweep(named, axes, key=KEY, store=store, progress=False)

    ask(["a", "bb"], tmp_path)
    del computed[:]
    grown = ask(["a", "a long one", "bb"], tmp_path)
    assert computed == [0, 1]
    assert grown.equals(ask(["a", "a long one", "bb"], None))


# ------------------------------------------------------------------ reading only
@pytest.fixture
def without_rights():
    """A folder on which rights can be taken away, root's too: root works as another user then."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@contextlib.contextmanager
def read_only(folder):
    state = lambda: {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.glob("*")}  # noqa: E731
    before, root = state(), os.geteuid() == 0
    folder.chmod(0o555)
    if root:
        os.seteuid(65534)
    try:
        assert not os.access(folder, os.W_OK, effective_ids=True)
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
    assert state() == before


@pytest.mark.skipif(os.name != "posix", reason="rights as POSIX has them")
def test_a_finished_store_is_read_where_nothing_can_be_written(without_rights, unstored, computed):
    store = without_rights / "store"
    run(store)
    del computed[:]
    with read_only(store):
        assert run(store).equals(unstored)
        assert study([2], store=store).equals(unstored.sel(seed=[2]))
        # What cannot be kept is not computed.
        with pytest.raises(gdln.SweepStoreError, match=r"2 of 16 points are not in it: pass a fo"):
            study(range(8), store=store)
        with pytest.raises(gdln.SweepStoreError, match=r"Permission denied.*14 of 14 points"):
            run(store / "new")
    assert computed == []


def chosen(key, m, k):
    if k > m:
        raise ValueError("k above m")
    return jnp.zeros(m)[:k].sum() + jax.random.normal(key)


@pytest.mark.skipif(os.name != "posix", reason="rights as POSIX has them")
def test_points_at_which_fn_cannot_be_traced_are_no_lack(without_rights):
    axes, store = {"m": [1, 2], "k": [1, 2]}, without_rights / "store"
    options = {"key": KEY, "static": ("m", "k"), "store": store, "progress": False}
    first = gdln.sweep(chosen, axes, **options)
    assert first["status"].values.tolist() == [[0, 5], [0, 0]]
    with read_only(store):
        assert gdln.sweep(chosen, axes, **options).equals(first)
        with pytest.raises(gdln.SweepStoreError, match="3 of 6 points are not in it"):
            gdln.sweep(chosen, {**axes, "m": [1, 2, 3]}, **options)


def kinds(key, **point):
    return sum(jnp.asarray(value, float) for name, value in point.items() if name != "name")


def test_points_are_found_by_values_of_every_type(tmp_path, computed):
    axes = {
        "flag": [True, False],
        "small": np.array([1, 2], np.int8),
        "name": ["a", "\u03b2"],
        "half": np.array([0.1, np.inf], np.float16),
        "single": np.array([0.1], np.float32),
        "big": np.array([2**63 + 5], np.uint64),
        "seed": [-0.0, 1e-300],
    }
    options = {"key": KEY, "store": tmp_path, "progress": False}
    first = gdln.sweep(kinds, axes, **options)
    assert len(computed) == first["value"].size == 32
    assert gdln.sweep(kinds, axes, **options).equals(first)
    assert len(computed) == 32


def test_a_finished_store_is_read_while_others_hold_it_and_nothing_is_touched(tmp_path, unstored):
    run(tmp_path)
    for path in tmp_path.glob("*.lock"):
        path.unlink()
    with _locks.locked(tmp_path, None):
        assert run(tmp_path).equals(unstored)
        assert run(tmp_path, shard=(0, 2)).equals(unstored)
        assert run(tmp_path, workers=2).equals(unstored)  # none is started
    assert [path.name for path in tmp_path.glob("*.lock")] == ["sweep.lock"]


def test_a_tilde_is_the_home_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    run("~/runs")
    assert (tmp_path / "runs" / "layout.json").exists()
    with pytest.raises(ValueError, match=r"store is '~no-such-user/runs' \(.*pass the path"):
        run("~no-such-user/runs")


# ------------------------------------------------------------------ who may write
def test_a_second_sweep_is_refused_with_the_process_that_is_at_work(tmp_path):
    with _locks.locked(tmp_path, None):
        for shard in (None, (0, 2)):
            with pytest.raises(gdln.SweepLockedError, match=f"process {os.getpid()} on"):
                run(tmp_path, shard=shard)
    with _locks.locked(tmp_path, (0, 2)):
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


@pytest.mark.slow
def test_the_exit_status_of_a_shard(tmp_path):
    script = tmp_path / "study.py"
    script.write_text(
        "import sys, jax, gdln_jax as gdln\n"
        "shard = tuple(map(int, sys.argv[1].split('/')))\n"
        "def fn(key, x): return {'y': x, 'status': (x > 1).astype(int)}\n"
        "gdln.sweep(fn, {'x': [0.0, 1.0, 2.0, 3.0]}, key=jax.random.key(0), batch=1,\n"
        "           store='kept', shard=shard, progress=False)\n"
    )

    def ends(shard):
        command = [sys.executable, script.name, shard]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = ends("0/2")
    assert done.returncode == 0, done.stderr  # one of its points has failed, two are not its own
    assert "3 of 4 points have no sound result" in done.stderr
    with _locks.locked(tmp_path / "kept", (1, 2)):
        taken = ends("1/2")
    assert taken.returncode == 1
    assert "SweepLockedError" in taken.stderr


# ------------------------------------------------------------------ several processes
SCALED = {"seed": list(range(8)), "scale": [1.0, 2.0, 4.0, 8.0]}


@pytest.mark.slow
def test_workers_of_this_machine_do_the_same_and_print_nothing(tmp_path, capfd):
    from tests import sweep_child as child

    options = {"key": jax.random.key(3), "progress": False, "batch": 16}
    alone = gdln.sweep(child.scaled, SCALED, **options)
    capfd.readouterr()
    assert gdln.sweep(child.scaled, SCALED, store=tmp_path, workers=2, **options).equals(alone)
    assert capfd.readouterr() == ("", "")  # each worker lacks half of the points
    assert len(list(tmp_path.glob("shard-*-of-2.lock"))) == 2
    assert len(list(tmp_path.glob("chunk-*.nc"))) == 2


@pytest.mark.slow
def test_workers_of_submitit_do_the_same(tmp_path):
    submitit = pytest.importorskip("submitit")
    from tests import sweep_child as child

    options = {"key": jax.random.key(3), "progress": False, "batch": 16}
    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="local")
    executor.update_parameters(timeout_min=3)
    store = tmp_path / "jobs store"
    out = gdln.sweep(child.scaled, SCALED, store=store, workers=1, executor=executor, **options)
    assert out.equals(gdln.sweep(child.scaled, SCALED, **options))
    assert len(list(store.glob("chunk-*.nc"))) == 2


def test_an_fn_that_cannot_be_sent_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="at the top of a module"):
        gdln.sweep(lambda _, x: x, {"x": [1.0]}, key=KEY, store=tmp_path, workers=1)
    # As under `python -c` and in a notebook; then from standard input.
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    main.fn = fn  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(fn, "__module__", "__main__")
    for name, value in (("fn", fn), ("func", functools.partial(fn, scale=1.0))):
        axes = AXES if name == "fn" else {"seed": [1]}
        with pytest.raises(ValueError, match=r"fn stands in __main__.*must stand in a module"):
            gdln.sweep(value, axes, key=KEY, store=tmp_path, workers=1)
    monkeypatch.undo()
    main.__file__ = "<stdin>"
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(ValueError, match=r"run <stdin> again, which is no file"):
        run(tmp_path, workers=1)
    assert list(tmp_path.iterdir()) == []


class Failing:
    """An executor whose jobs all end with an error."""

    def __init__(self, error):
        self.error = error

    def submit(self, *_):
        job = Future()
        job.set_exception(self.error)
        return job


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (gdln.SweepLockedError("held by process 7"), gdln.SweepLockedError, "^held by process 7$"),
        (gdln.SweepStoreError("it is full"), gdln.SweepStoreError, "^it is full$"),
        (BrokenProcessPool("broken"), RuntimeError, r"^2 of 2 workers .* killed, or did not start"),
        (MemoryError("too much"), RuntimeError, r"^2 of 2 workers .* MemoryError: too much\."),
    ],
)
def test_what_ends_a_worker_is_said_in_a_line(tmp_path, error, kind, words):
    with pytest.raises(kind, match=words) as caught:
        run(tmp_path, workers=2, executor=Failing(error))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "\n" not in str(caught.value)


def test_workers_are_not_started_for_a_store_in_use(tmp_path):
    with (
        _locks.locked(tmp_path, (0, 2)),
        pytest.raises(gdln.SweepLockedError, match=rf"\(process {os.getpid()} on [^)]*\)"),
    ):
        run(tmp_path, workers=2, executor=Failing(AssertionError("a worker was started")))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="asks /proc which processes there are")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(tmp_path, number):
    parent = python("shared", tmp_path)
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob("store/chunk-*.nc")) and time.monotonic() < deadline:
        time.sleep(0.02)
    locks = list(tmp_path.glob("store/shard-*.lock"))
    workers = [int(path.read_text().split()[1]) for path in locks if path.read_text()]
    os.kill(parent.pid, number)  # the parent alone
    _, error = parent.communicate()
    assert error.count("Traceback") == (number == signal.SIGINT)  # none of a worker
    assert workers
    while any(Path(f"/proc/{one}").exists() for one in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert time.monotonic() < deadline
    assert len(list(tmp_path.glob("store/chunk-*.nc"))) < 2000  # they had not finished
    with _locks.locked(tmp_path / "store", None):  # and hold nothing
        pass


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
