"""`gdln.configure`: what it sets, what cannot be set any more, and bad input."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import gdln_jax as gdln

SCRIPT = """
import sys, warnings
import gdln_jax as gdln
now = gdln.configure(cache={folder!r}, error_callbacks=False, cpu_devices=2)
assert now == {{"cache": {folder!r}, "error_callbacks": "off", "cpu_devices": "2"}}, now
assert "equinox" not in sys.modules
import jax
assert len(jax.devices()) == 2
mode = gdln.Graph.chain([1, 1, 1])
reduction = gdln.reduce(mode, gdln.GatedData({{"x": [[1.0]]}}, {{"y": [[2.0]]}}))
reduction.solve(0.1, [0.0, 1.0])
divided, shard_map = [], jax.shard_map
jax.shard_map = lambda f, mesh, **how: divided.append(mesh.size) or shard_map(f, mesh=mesh, **how)
runs = gdln.sweep(lambda key, a: 2 * a, {{"a": [1.0, 2.0, 3.0]}}, key=jax.random.key(0))
assert runs.value.values.tolist() == [2, 4, 6] and divided == [2], divided
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    late = gdln.configure(error_callbacks=True, cpu_devices=3)
assert late == {{"error_callbacks": "off", "cpu_devices": "2"}}, late
for name, value in (("cache", 3), ("error_callbacks", "nan"), ("cpu_devices", "2")):
    try:
        gdln.configure(**{{name: value}})
    except (TypeError, ValueError) as error:
        assert f"{{name}} is {{value!r}}; pass" in str(error), error
    else:
        raise AssertionError(name)
print(*[str(warning.message) for warning in said], sep="\\n")
"""


@pytest.mark.slow
def test_set_first_and_too_late(
    plain_python: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    done = plain_python(SCRIPT.format(folder=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    callbacks, devices = done.stdout.splitlines()
    assert "EQX_ON_ERROR=raise" in callbacks
    assert "JAX_NUM_CPU_DEVICES" in devices
    # A solver's program is kept, which one with a callback is not.
    assert list(tmp_path.glob("*_solve*"))


def test_what_holds() -> None:
    holds = gdln.configure()
    assert holds.keys() == {"cache", "error_callbacks", "cpu_devices"}
    assert holds["error_callbacks"] == "off"  # tests run without, see conftest.py


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cpu_devices is 0"):
        gdln.configure(cpu_devices=0)
    (tmp_path / "file").touch()
    before = gdln.configure()["cache"]
    with pytest.warns(RuntimeWarning, match="cannot be made"):
        gdln.configure(cache=tmp_path / "file" / "below")
    assert gdln.configure()["cache"] == before
