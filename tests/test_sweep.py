"""Sweeps on one device: labels, keys, static axes, compiled programs, memory, status per point."""

import functools
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from sweep_parts import _axes, _memory, _program, _static, _status

import gdln_jax as gdln

# Memory and static axes, which no run shows by itself.

KEY = jax.random.key(7)
AXES = {"size": [2, 3], "scale": [0.1, 0.2, 0.5], "seed": [0, 1, 5]}


def draw(key, size, scale, seed):
    """Its value is random: what comes out tells which key went in."""
    del seed
    w = scale * jax.random.normal(key, (size,))
    return {"w": w, "norm": jnp.sum(w**2), "size_seen": size}


@pytest.fixture(scope="module")
def drawn():
    units = {"scale": "1", "norm": "1", "w_unit": "m"}
    return gdln.sweep(
        draw, AXES, key=KEY, progress=False, units=units, dims={"w": ["w_unit"]},
        coords={"w_unit": [1.0, 2.0, 3.0]},
    )  # fmt: skip


# ------------------------------------------------------------------ 1: labels
def test_axes_become_dimensions_with_coordinates_units_and_provenance(drawn):
    assert drawn["norm"].dims == ("size", "scale", "seed")
    assert drawn["w"].dims == ("size", "scale", "seed", "w_unit")
    for name, values in AXES.items():
        np.testing.assert_array_equal(drawn[name], values)
    assert drawn["w_unit"].attrs["units"] == "m"
    assert drawn["norm"].attrs["units"] == drawn["scale"].attrs["units"] == "1"
    assert json.loads(drawn.attrs["versions"])["jax"] == jax.__version__
    assert "cpu" in json.loads(drawn.attrs["machine"])["devices"]
    assert (
        drawn.attrs["key"] == "threefry2x32 " + np.asarray(jax.random.key_data(KEY)).tobytes().hex()
    )
    assert len(drawn.attrs["sweep_spec"]) == len(drawn.attrs["sweep_code"]) == 24
    assert drawn.attrs["fn"].endswith("draw")


def test_each_value_is_that_of_a_call_at_its_coordinates(drawn):
    grid = _axes.Grid(_axes.read_axes(AXES), frozenset(), tuple(AXES))
    for number in (0, 7, 17):
        point = grid.point(number)
        key = KEY
        for word in grid.words(np.array([number]))[0]:
            key = jax.random.fold_in(key, word)
        wanted = draw(key, **point)
        there = drawn.sel(point)
        np.testing.assert_allclose(there["w"][: point["size"]], wanted["w"], rtol=1e-14)
        assert int(there["size_seen"]) == point["size"]


def test_the_result_is_a_netcdf_file(drawn, tmp_path):
    drawn.to_netcdf(tmp_path / "sweep.nc", engine="h5netcdf")
    xr.testing.assert_identical(
        xr.load_dataset(tmp_path / "sweep.nc", engine="h5netcdf").drop_vars("reason"),
        drawn.drop_vars("reason"),
    )


def test_shapes_that_differ_between_static_values_are_filled_up_with_nan(drawn):
    assert drawn["w"].attrs["padded_with_nan"] == 1
    assert np.isnan(drawn["w"].sel(size=2)[..., 2]).all()
    assert np.isfinite(drawn["w"].sel(size=3)).all()
    assert (drawn["status"] == 0).all()


def test_a_data_array_hands_its_units_on_and_a_lone_array_is_called_value():
    axis = xr.DataArray([0.0, 1.0], dims="t", attrs={"units": "tau"})
    out = gdln.sweep(lambda _, t: 2 * t, {"t": axis}, key=KEY, progress=False)
    assert out["t"].attrs["units"] == "tau"
    np.testing.assert_array_equal(out["value"], [0.0, 2.0])


# ------------------------------------------------------------------ 1: keys
def test_keys_are_those_of_the_values_whatever_order_chunk_and_neighbours(drawn):
    # Another order of axes and of values, values added, another type of number, another batch.
    axes = {"seed": [5, 9, 0, 1], "size": [3, 2, 4], "scale": [0.7, 0.5, 0.2, 0.1]}
    again = gdln.sweep(draw, axes, key=KEY, batch=5, progress=False)
    common = again.sel(AXES).transpose("size", "scale", "seed", ...)
    # To rounding only: the compiler may contract other products in a batch of another size.
    np.testing.assert_allclose(common["norm"], drawn["norm"], rtol=1e-14)
    as_floats = _axes.read_axes({**AXES, "seed": [0.0, 1.0, 5.0]})
    words = [
        _axes.Grid(a, frozenset(), tuple(AXES)).words(np.arange(18))
        for a in (_axes.read_axes(AXES), as_floats)
    ]
    np.testing.assert_array_equal(words[0], words[1])


def test_no_two_points_share_a_key_and_another_key_changes_all(drawn):
    rows = drawn["w"].sel(size=3) / drawn["scale"]
    assert len(np.unique(np.round(rows.values.reshape(-1, 3), 12), axis=0)) == 9
    other = gdln.sweep(draw, AXES, key=jax.random.key(8), progress=False)
    assert (other["norm"] != drawn["norm"]).all()


def test_key_axes_give_all_points_of_a_seed_the_same_random_numbers():
    out = gdln.sweep(draw, AXES, key=KEY, key_axes=("seed",), progress=False)
    ratio = out["norm"].sel(size=3) / out["scale"] ** 2
    np.testing.assert_allclose(ratio, ratio[:1].values + np.zeros((3, 1)), rtol=1e-13)
    assert len(np.unique(np.round(ratio.sel(scale=0.1), 12))) == 3


def test_old_keys_of_two_words_are_taken():
    old = gdln.sweep(draw, {**AXES, "size": [2]}, key=jax.random.PRNGKey(7), progress=False)
    new = gdln.sweep(draw, {**AXES, "size": [2]}, key=KEY, progress=False)
    np.testing.assert_array_equal(old["norm"], new["norm"])


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_a_key_whose_numbers_depend_on_the_batch_is_refused(impl):
    with pytest.raises(ValueError, match=rf"generator '{impl}'.*impl='threefry2x32'"):
        gdln.sweep(draw, AXES, key=jax.random.key(0, impl=impl), progress=False)
    with (
        jax.default_prng_impl(impl),
        pytest.raises(ValueError, match=rf"generator '{impl}'"),
    ):
        gdln.sweep(draw, AXES, key=jax.random.PRNGKey(0), progress=False)


def test_such_keys_inside_of_fn_are_refused_where_they_follow_the_point():
    def own(draw):
        return lambda _, seed: draw(jax.random.key(seed, impl="rbg"))

    for body in (
        jax.random.normal,
        lambda key: jax.lax.scan(lambda k, _: (k, jax.random.bits(k)), key, None, 2)[1],
        lambda key: jax.random.gamma(key, 2.0),
    ):
        with pytest.raises(ValueError, match=r"keys of its own.*'key<rbg>'.*threefry2x32"):
            gdln.sweep(own(body), {"seed": [1, 2]}, key=KEY, progress=False)
    # One key for all points is safe, and so are keys of fn's own of the right kind.
    same = jax.random.normal(jax.random.key(3, impl="rbg"))
    out = gdln.sweep(
        lambda _, seed: (
            jax.random.normal(jax.random.key(3, impl="rbg")) + 0 * seed,
            jax.random.normal(jax.random.key(seed)),
        ),
        {"seed": [1, 2]},
        key=KEY,
        progress=False,
    )
    np.testing.assert_array_equal(out["0"], same)
    np.testing.assert_allclose(out["1"][1], jax.random.normal(jax.random.key(2)), rtol=1e-15)


# ------------------------------------------------------------------ 1: labels are what fn gets
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([1, 2**32 + 1, 2**40], r"4294967297, but fn would get 1: JAX holds int32"),
        ([-(2**31) - 1], r"-2147483649, but fn would get 2147483647"),
        (np.array([5, 2**63 + 5], np.uint64), r"9223372036854775813, but fn would get 5"),
        ([1.0, 1e-50], r"1e-50, but fn would get 0\.0: JAX holds float32"),
        ([1.0, 1e-42], r"1e-42, but fn would get 1\.0005271035"),
        ([1.0, -1e60], r"-1e\+60, but fn would get -inf"),
        ([1.0, 1.0 + 1e-9], r"1\.000000001, but fn would get 1\.0"),
        ([2.0**24, 2.0**24 + 1], r"16777217\.0, but fn would get 16777216\.0"),
    ],
)
def test_a_value_that_fn_would_see_as_another_is_refused_before_anything_runs(values, named):
    def fn(key, x):
        jax.debug.callback(lambda: pytest.fail("it ran"))
        return x * 1

    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=f"axis 'x' holds {named}.*jax_enable_x64.*static"),
    ):
        gdln.sweep(fn, {"x": values}, key=jax.random.key(0), progress=False)
    out = gdln.sweep(lambda _, x: x * 1, {"x": values}, key=KEY, progress=False)
    assert out["value"].values.tolist() == out["x"].values.tolist() == list(values)


def test_what_arrives_as_it_is_called_is_taken_in_32_bits():
    values = [0.1, 1e-30, -np.inf, 0.0]
    with jax.enable_x64(False):
        out = gdln.sweep(lambda _, x: x, {"x": values}, key=jax.random.key(0), progress=False)
        big = gdln.sweep(
            lambda _, n: jnp.float32(n),
            {"n": [2**40]},
            key=jax.random.key(0),
            static=("n",),
            progress=False,
        )
    np.testing.assert_array_equal(out["value"], np.array(values, np.float32))
    assert big["value"] == 2.0**40


def test_values_that_share_no_type_are_refused():
    for values in ([-1, 2**63 + 5], [0.5, 2**53 + 1]):
        with pytest.raises(ValueError, match=rf"axis 'x' holds {values[1]}, which .*float64"):
            gdln.sweep(lambda _, x: x, {"x": values}, key=KEY, progress=False)
    with pytest.raises(ValueError, match="at most 64 bits"):
        gdln.sweep(lambda _, x: x, {"x": np.ones(1, np.longdouble)}, key=KEY, progress=False)


# ------------------------------------------------------------------ 1: static axes
def test_whole_numbers_are_static_only_where_fn_needs_them():
    axes = _axes.read_axes({**AXES, "kind": ["a", "b"]})
    assert _static.find_static(
        lambda key, **p: draw(key, p["size"], p["scale"], p["seed"]), axes, (), KEY
    ) == {
        "size",
        "kind",
    }
    assert _static.find_static(lambda _, **p: p["seed"] * p["size"], axes[:3], ("seed",), KEY) == {
        "seed"
    }


def test_a_size_is_found_among_points_that_fn_refuses():
    def fn(key, size, k):
        if k > size:
            raise ValueError("k above size")
        return jnp.zeros(size)[k - 1]

    axes = _axes.read_axes({"size": [1, 2], "k": [2, 1]})
    assert _static.find_static(fn, axes, (), KEY) == {"size", "k"}


def test_a_float_that_must_be_static_is_named_with_the_cure():
    def fn(key, scale, seed):
        return jnp.where(scale > 0.15, 1.0, 0.0) if float(scale) > 0 else jnp.ones(())

    with pytest.raises(ValueError, match=r"axis 'scale'.*static=\('scale',\)"):
        gdln.sweep(fn, {"seed": [0, 1], "scale": [0.1, 0.2]}, key=KEY, progress=False)
    out = gdln.sweep(
        fn, {"seed": [0, 1], "scale": [0.1, 0.2]}, key=KEY, static=("scale",), progress=False
    )
    np.testing.assert_array_equal(out["value"], [[0, 1], [0, 1]])
    assert out["scale"].attrs["static"] == 1
    assert out["seed"].attrs["static"] == 0


def test_one_program_per_shape_and_no_other():
    traces = []

    def fn(key, size, seed, scale):
        traces.append(size)
        return scale * jnp.sum(jax.random.normal(key, (size,))) + seed

    axes = {"size": [2, 3, 4], "seed": range(10), "scale": [1.0, 2.0]}
    gdln.sweep(fn, axes, key=KEY, static=("size",), batch=7, progress=False)
    # One to see that the other axes can be traced, then one for each size: 60 points, 9 chunks.
    assert traces == [2, 2, 3, 4]


def trained(key, scale, seed, traces=None):
    """A run whose step touches some 200 kB as traced: matrices (1, 100, 100)."""
    if traces is not None:
        traces.append("once more")
    start = {"w": scale * jax.random.normal(key, (100, 100))}
    run = gdln.train(
        start, None, loss=lambda m, _: jnp.sum(jnp.sin(m["w"]) ** 2),
        optimizer=optax.sgd(0.1), steps=3, keep_models=False,
    )  # fmt: skip
    return run.losses


def test_on_a_cpu_the_batch_follows_the_shapes_and_changes_nothing(monkeypatch):
    traces, batches, threads = [], [], set()
    make, call = _program.Program.__init__, _program.Program.__call__

    def made(self, point, batch, mesh):
        batches.append(batch)
        make(self, point, batch, mesh)

    def called(self, numbers):
        threads.add(self.threads)
        return call(self, numbers)

    monkeypatch.setattr(_program.Program, "__init__", made)
    monkeypatch.setattr(_program.Program, "__call__", called)
    monkeypatch.setattr("gdln_jax._machine.cores", lambda: 3)
    axes = {"scale": [0.1, 1.0], "seed": range(12)}
    fn = functools.partial(trained, traces=traces)
    own = gdln.sweep(fn, axes, key=KEY, progress=False)
    assert len(traces) == 2  # to see what can be traced, and for the program
    whole = gdln.sweep(fn, axes, key=KEY, batch=24, progress=False)
    assert len(batches) == 2
    assert batches[1] == 24
    assert 1 < batches[0] < 12
    assert threads == {3, 1}
    np.testing.assert_allclose(own["value"], whole["value"], rtol=1e-13)


def test_batches_are_equal_parts_that_fit_the_caches():
    each = _memory.CACHE // 7
    assert _memory.in_cache(1024, 1, each) == 7
    assert _memory.in_cache(8, 1, each) == 4  # not 7 and 1
    assert _memory.in_cache(30, 2, each) == 10  # three batches of five on each device
    assert _memory.in_cache(5, 1, 2**40) == 1
    assert _memory.in_cache(10**6, 1, 0) == 10**6
    x = jnp.ones(1000)

    def looped(shared, own):
        step = lambda _, h: jnp.sin(h) + shared  # noqa: E731
        return jnp.sum(jnp.outer(own, own)) + jax.lax.fori_loop(0, 9, step, own).sum()

    # A step reads h and makes its sine and the sum; what is shared does not count.
    grid = _axes.Grid(_axes.read_axes({"seed": range(2)}), frozenset(), ("seed",))
    point = _program.Point(lambda _, seed: looped(x, seed * x), grid, 0, KEY)
    size = x.nbytes
    assert 3 * size <= point.own_bytes() <= 4 * size


# ------------------------------------------------------------------ 1: memory
def heavy(key, seed):
    return jnp.sum(jnp.linalg.eigvalsh(jax.random.normal(key, (40, 40)))) + seed


def test_the_batch_follows_the_memory_that_the_program_needs():
    grid = _axes.Grid(_axes.read_axes({"seed": range(64)}), frozenset(), ("seed",))
    point, made = _program.Point(heavy, grid, 0, KEY), []

    def make(batch):
        made.append(batch)
        return _program.Program(point, batch, None)

    whole = _memory.fitted(make, 64, 1, 2**40)
    assert whole.batch == 64
    assert made == [64]
    limit = whole.bytes_needed() // 5
    part = _memory.fitted(make, 64, 1, limit)
    assert part.bytes_needed() <= limit
    assert 4 <= part.batch < 64
    one = _memory.fitted(make, 64, 1, 1)
    assert one.batch == 1  # the least there is
    values = [p(np.arange(64)).arrays["value"] for p in (whole, part)]
    np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-12)


def square(key, x):
    del key
    return x**2


@pytest.fixture
def tight(monkeypatch):
    """A device with room for two points, which the compiler's account does not know of."""
    tried, run = [], _program.Program._run

    def attempt(self, *given):
        tried.append(self.batch)
        if self.batch > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes")
        return run(self, *given)

    monkeypatch.setattr(_program.Program, "_run", attempt)
    monkeypatch.setattr("gdln_jax._machine.cores", lambda: 1)  # one batch after the other
    return tried


def test_a_batch_that_runs_out_of_memory_is_halved_until_it_fits(tight):
    done = gdln.sweep(square, {"x": np.arange(7.0)}, key=KEY, progress=False)
    assert tight == [7, 3, 1, 1, 1, 1, 1, 1, 1]  # the batch that fits is kept for the rest
    np.testing.assert_array_equal(done["value"], np.arange(7.0) ** 2)
    assert (done["status"] == 0).all()


def test_a_batch_that_was_asked_for_is_not_changed_behind_ones_back(tight):
    with pytest.raises(RuntimeError, match=r"batch of 8 points: pass a smaller batch=, .* 4"):
        gdln.sweep(square, {"x": np.arange(8.0)}, key=KEY, batch=8, progress=False)
    assert tight == [8]


def test_the_budget_is_a_share_of_what_is_free():
    assert 2**20 < _memory.budget(jax.local_devices()[0]) < 2**42

    class Card:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": 1000, "bytes_in_use": 500}

    assert _memory.budget(Card()) == 400


# ------------------------------------------------------------------ 5: status
def test_what_fails_is_recorded_at_its_point_and_nowhere_else(caplog):
    def fn(key, rate, start):
        model = {"w": start * jnp.ones(())}
        run = gdln.train(
            model, None, optimizer=optax.sgd(rate), steps=400,
            loss=lambda m, _: 0.5 * m["w"] ** 2, keep_models=False,
        )  # fmt: skip
        return {"final": run.final["w"], "run": run, "steps": 400}

    axes = {"rate": [0.1, 8.0], "start": [1.0, np.inf]}
    with caplog.at_level(logging.WARNING, "gdln_jax.sweep"):
        out = gdln.sweep(fn, axes, key=KEY, progress=False)
    np.testing.assert_array_equal(out["status"], [[0, 1], [1, 1]])
    assert out["reason"].sel(rate=8.0, start=1.0) == "diverged (loss is not finite)"
    assert np.isfinite(out["final"].values).tolist() == [[True, False], [False, False]]
    assert out["steps"].dtype == np.int64
    # The curve up to where it failed is kept.
    assert np.isfinite(out["run.losses"].sel(rate=8.0, start=1.0)[:5]).all()
    assert out.attrs["failed_points"] == 3
    assert "3 of 4 points have no sound result (3 x diverged" in caplog.text
    words = out["status"].attrs["flag_meanings"].split()
    assert (
        dict(zip(out["status"].attrs["flag_values"].tolist(), words, strict=True))
        == _status.MEANINGS
    )


def test_a_solver_that_gives_up_leaves_no_plausible_number():
    def fn(key, steepness):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda _, y, __: -steepness * y), diffrax.Tsit5(), 0.0, 1.0, 0.1,
            jnp.ones(()), stepsize_controller=diffrax.PIDController(1e-6, 1e-6),
            max_steps=64, throw=False,
        )  # fmt: skip
        assert solution.ys is not None
        return {"end": solution.ys[0], "result": solution.result}

    out = gdln.sweep(fn, {"steepness": [1.0, 1e4]}, key=KEY, progress=False)
    np.testing.assert_array_equal(out["status"], [0, 2])
    assert out["reason"].values.tolist() == ["ok", "the solver gave up"]
    assert np.isnan(out["end"][1])
    assert abs(float(out["end"][0]) - np.exp(-1)) < 1e-5
    assert set(out.data_vars) == {"end", "status", "reason"}


def test_an_unreported_nan_is_recorded_and_its_neighbours_stay():
    def fn(key, x):
        return {"root": jnp.sqrt(x), "x2": x**2}

    out = gdln.sweep(fn, {"x": [-1.0, 4.0]}, key=KEY, progress=False)
    np.testing.assert_array_equal(out["status"], [3, 0])
    np.testing.assert_array_equal(out["x2"], [1.0, 16.0])


def test_an_error_raised_inside_the_program_belongs_to_its_points():
    import equinox as eqx

    def fn(key, x):
        same = eqx.error_if(x, x > 2.5, "x is above 2.5", on_error="raise")
        return {"same": same, "whole": x.astype(int)}

    out = gdln.sweep(fn, {"x": [0.0, 1.0, 2.0, 3.0, 1.5]}, key=KEY, progress=False)
    np.testing.assert_array_equal(out["status"], [0, 0, 0, 5, 0])
    assert out["reason"][3] == "fn raised: x is above 2.5"
    np.testing.assert_array_equal(out["same"], [0.0, 1.0, 2.0, np.nan, 1.5])
    # A whole number cannot say that it is missing.
    np.testing.assert_array_equal(out["whole"], [0.0, 1.0, 2.0, np.nan, 1.0])


def test_an_error_at_some_static_values_belongs_to_their_points():
    def fn(key, m, k, seed):
        if k > m:
            raise ValueError(f"K = {k} above M = {m}")
        return jnp.zeros((m,))[:k].sum() + seed

    axes = {"m": [1, 2], "k": [1, 2], "seed": [0, 1]}
    out = gdln.sweep(fn, axes, key=KEY, static=("m", "k"), progress=False)
    np.testing.assert_array_equal(out["status"][:, :, 0], [[0, 5], [0, 0]])
    assert out["reason"].sel(m=1, k=2, seed=1) == "fn raised: ValueError: K = 2 above M = 1"
    assert np.isnan(out["value"].sel(m=1, k=2)).all()


def test_an_fn_that_raises_everywhere_raises():
    def fn(key, m, **others):
        raise KeyError("a slip of the pen")

    with pytest.raises(ValueError, match="a slip of the pen"):
        gdln.sweep(fn, {"m": [1, 2], "seed": [0.5]}, key=KEY, progress=False)
    with pytest.raises(RuntimeError, match=r"at every point of the sweep.*a slip of the pen"):
        gdln.sweep(fn, {"m": [1, 2]}, key=KEY, static=("m",), progress=False)


# ------------------------------------------------------------------ 4: progress
def test_progress_is_silent_without_a_terminal_and_can_be_a_function(capsys):
    told = []
    axes = {"x": [1.0, 2.0, 3.0, 4.0]}
    gdln.sweep(lambda _, x: x, axes, key=KEY, batch=3, progress=lambda *a: told.append(a))
    assert [fraction for fraction, _ in told] == [0.0, 0.75, 1.0]
    assert told[-1][1] == "4 of 4 points"
    gdln.sweep(lambda _, x: x, axes, key=KEY)
    out = capsys.readouterr()
    assert out.out == out.err == ""


def test_a_terminal_gets_a_bar_with_an_estimate(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    gdln.sweep(lambda _, x: x, {"x": [1.0, 2.0]}, key=KEY, batch=1)
    shown = capsys.readouterr().err
    assert "2 of 2 points" in shown
    assert "left" in shown


# ------------------------------------------------------------------ refusals
def test_dims_of_another_number_are_refused_before_anything_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(_program.Program, "__init__", lambda *_: pytest.fail("a program was made"))
    for dims, message in (
        ({"curve": ["step"]}, r"1 dimensions of 'curve' \(step\), but each point has 2"),
        ({"curve": ["a", "b"], "x": "step"}, r"1 dimensions of 'x' \(step\), but each point has 0"),
    ):
        with pytest.raises(ValueError, match=message):
            gdln.sweep(
                lambda _, n: {"curve": jnp.zeros((2, n)), "x": 1.0}, {"n": [1, 2]}, key=KEY,
                dims=dims, store=tmp_path / "s", progress=False,
            )  # fmt: skip
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("axes", "options", "message"),
    [
        ({}, {}, "at least one name"),
        ({"key": [1]}, {}, "axis name 'key'"),
        ({"x": [[1.0]]}, {}, "axis 'x' has shape"),
        ({"x": []}, {}, "axis 'x' has shape"),
        ({"x": "abc"}, {}, "axis 'x' is 'abc'"),
        ({"x": [1, 1]}, {}, "axis 'x' has a value twice"),
        ({"x": [1.0, np.nan]}, {}, "axis 'x' has NaN"),
        ({"x": [1, "a"]}, {}, "axis 'x' holds"),
        ({"x": [1j]}, {}, "axis 'x' holds complex"),
        ({"y": [1]}, {}, r"axis 'y' is no argument of fn.*\(key, y\)"),
        ({"x": [1]}, {"static": ("z",)}, "static names 'z', which is no axis"),
        ({"x": [1]}, {"static": "x"}, r"pass a tuple of names, \('x',\)"),
        ({"x": [1]}, {"batch": 0}, "batch is 0"),
        ({"x": [1]}, {"shard": (0, 2)}, "through store=DIR"),
        ({"x": [1]}, {"workers": 2}, "through store=DIR"),
        ({"x": [1]}, {"executor": ThreadPoolExecutor(1)}, "executor= needs workers="),
        ({"x": [1]}, {"store": "nowhere", "shard": (2, 2)}, "0 <= i < n"),
        ({"x": [1.0]}, {"dims": {"value": ["a"]}}, "names 1 dimensions of 'value'"),
        ({"x": [1.0]}, {"units": {"value1": "1"}}, "did you mean 'value'"),
    ],
)  # fmt: skip
def test_refusals_name_the_culprit(axes, options, message):
    with pytest.raises(ValueError, match=message):
        gdln.sweep(lambda _, x: x * 1.0, axes, key=KEY, progress=False, **options)


def test_results_that_fit_no_data_set_are_refused():
    with pytest.raises(ValueError, match="'value' with 1 and 2 dimensions"):
        gdln.sweep(lambda _, n: jnp.zeros((2,) * n), {"n": [1, 2]}, key=KEY, progress=False)
    with pytest.raises(ValueError, match="array named 'x', which is the name of an axis"):
        gdln.sweep(lambda _, x: {"x": x}, {"x": [1.0]}, key=KEY, progress=False)
    with pytest.raises(ValueError, match="real and imaginary parts"):
        gdln.sweep(lambda _, x: x * 1j, {"x": [1.0]}, key=KEY, progress=False)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("kind", "wider"),
    [
        ("bfloat16", "float32"),
        ("float8_e4m3fn", "float32"),
        ("int4", "int8"),
        ("uint4", "uint8"),
        ("float16", "float16"),
    ],
)
def test_types_that_netcdf_does_not_have_come_back_wider(tmp_path, kind, wider, kept):
    def fn(key, x):
        return {"y": x.astype(kind), "ok": jnp.sum(x) > 1}

    store = tmp_path / "store" if kept else None
    for _ in range(2):  # computed, then read
        out = gdln.sweep(fn, {"x": [1.0, 2.5]}, key=KEY, store=store, progress=False)
        assert out["y"].dtype == wider
        assert out["y"].values.tolist() == np.array([1, 2.5]).astype(jnp.dtype(kind)).tolist()
        out.to_netcdf(tmp_path / "out.nc", engine="h5netcdf")


def test_the_page_on_sweeps_runs_as_printed():
    page = (Path(__file__).parent.parent / "docs" / "sweep.md").read_text(encoding="utf-8")
    block = page.split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "docs/sweep.md", "exec"), scope)
    runs = scope["runs"]
    assert runs["loss"].dims == ("scale", "seed", "step")
    assert runs["loss"].shape == (2, 8, 501)
    # The larger weights leave the plateau first.
    assert (runs["loss"][1, :, -1] < runs["loss"][0, :, -1]).all()


def test_what_is_no_mapping_or_no_loss_is_refused_before_anything_runs(refused_plainly):
    refused_plainly("""
import jax, gdln_jax as gdln
def fn(key, a): raise AssertionError("it runs")
def swept(**names): gdln.sweep(fn, {"a": [1.0]}, key=jax.random.key(0), **names)
def flow(**options): gdln.gradient_flow(net, data, [0.0, 1.0], **options)
net, data = (gdln.GatedNetwork(gdln.Graph.chain([1, 1]), {"x->y": [[0.5]]}),
             gdln.GatedData({"x": [[1.0]]}, {"y": [[1.0]]}))
attempts = [
    (lambda: swept(dims=["v"]), "dims is ['v']; it must be a mapping"),
    (lambda: swept(coords=3), "coords is 3; it must be a mapping"),
    (lambda: swept(units="s"), "units is 's'; it must be a mapping"),
    (lambda: swept(dims={"v": 3}), "dims['v'] is 3; pass a list of names"),
    (lambda: swept(mesh=3), "mesh is 3; pass a jax.sharding.Mesh"),
    (lambda: swept(workers=1, store="s", executor=3), "executor is 3; pass an object with a meth"),
    (lambda: swept(static=3), "static is 3; pass a tuple of names of axes: 'a'"),
    (lambda: swept(key_axes=3), "key_axes is 3; pass a tuple of names of axes: 'a'"),
    (lambda: flow(loss="mse"), "loss is 'mse'; pass a function"),
    (lambda: flow(max_steps=0), "max_steps is 0"),
]
""")
