"""A network over the course of its training, from checkpoints that another program saved."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from gdln_jax import Trajectory, mse
from gdln_jax._checks import Result, listed
from gdln_jax._checks.types import ArrayLike
from gdln_jax._data.gated import GatedData
from gdln_jax._data.state import READABLE, NamedArrays, Orientation, read_arrays
from gdln_jax.relu._gates import Snapshots, snapshot
from gdln_jax.relu._network import ReLUNetwork
from gdln_jax.relu._reading import Layout, find_layout


class History(Result, eqx.Module):
    """One ReLU network at several steps of its training; made by `history`.

    Attributes:
        steps: (time,), numbers of steps, increasing.
        network: the networks, stacked along a leading axis of time.
        notes: what was read, and what was assumed in reading it.
    """

    _units: ClassVar = {"steps": "steps"}

    steps: Int[np.ndarray, " time"]
    network: ReLUNetwork
    notes: tuple[str, ...] = eqx.field(static=True, default=())

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, index: int) -> ReLUNetwork:
        """Return the network at `steps[index]`."""
        return jax.tree.map(lambda a: a[index], self.network)

    def snapshots(
        self, data: GatedData, *, layer: int | None = None, threshold: ArrayLike = 0.0
    ) -> Snapshots:
        """Return snapshots with the leading axis time (`relu.snapshot`), for `discover_gates`."""
        self.at(0).ends(data)
        return jax.vmap(lambda net: snapshot(net, data, layer=layer, threshold=threshold))(
            self.network
        )

    def run(
        self, data: GatedData, *, layer: int | None = None, threshold: ArrayLike = 0.0
    ) -> Trajectory:
        """Return the history as `train` returns its runs, with `snapshots` as what was measured.

        It goes wherever a run does: `imitation_gap`, `measures.richness`, `plot`. Losses are those
        of `mse`, whatever the network was trained on; `steps` stand for the times.
        """
        measured = self.snapshots(data, layer=layer, threshold=threshold)
        losses = jax.vmap(lambda net: mse(net, data))(self.network)
        return Trajectory(
            jnp.asarray(self.steps), losses, jnp.asarray(0), {}, self.network, self.at(-1), measured
        )

    def __repr__(self) -> str:
        steps = f"{len(self.steps)} checkpoints, steps {self.steps[0]} to {self.steps[-1]}"
        if len(self.steps) == 1:
            steps = f"1 checkpoint, step {self.steps[0]}"
        return f"History({steps} of {self.at(0)!r})"


def history(
    source: object,
    *,
    steps: ArrayLike | Sequence[int] | None = None,
    layers: Sequence[str] | None = None,
    orientation: Orientation | None = None,
    slope: float | int = 0.0,
    masks: Sequence[object] | None = None,
) -> History:
    """Read the checkpoints of one training.

    Args:
        source: a folder of checkpoint files; a list of paths, mappings or modules in the order of
            training; one mapping or file of arrays with a leading axis of time, (time, |target|,
            |source|); a `ReLUNetwork`, stacked or not; or a run of `train` that kept its models.
        steps: number of steps of each. Default: what the checkpoints say (entries `step`,
            `global_step`, `iteration`, `epoch`), the last number in the names of files, or 0, 1,
            2, ... for a list.
        layers: as in `ReLUNetwork.from_state_dict`, for all checkpoints alike.
        orientation: likewise.
        slope: likewise.
        masks: likewise.

    Raises:
        ValueError: as `from_state_dict`; a folder without checkpoints, or with files whose names
            do not number them; steps that do not increase; checkpoints of other shapes than the
            first.
    """
    if isinstance(source, Trajectory):
        net = source.models
        if not isinstance(net, ReLUNetwork) or source.losses.ndim != 1:
            raise ValueError("the run is of another network, a batch, or did not keep its models.")
        return History(np.asarray(source.ts if steps is None else steps).astype(int), net)
    if isinstance(source, ReLUNetwork):
        stack = source if source.weights[0].ndim > 2 else jax.tree.map(lambda a: a[None], source)
        return _with_steps(stack, [None] * len(stack.weights[0]), steps, ())
    many = _checkpoints(source)
    one = many[0]
    stacked = len(many) == 1 and _is_stacked(one)
    first = _sliced(one) if stacked else one
    layout = find_layout(first, layers=layers, orientation=orientation)
    if not stacked:
        for read in many[1:]:
            _check_same(layout, first, read)
    arrays = one.arrays if stacked else _stack(layout, many)
    net = ReLUNetwork(layout.weights(arrays), layout.biases(arrays), slope, masks)
    places = f"{one.where} to {many[-1].where}" if len(many) > 1 else one.where
    notes = [f"read {places}: {layout!r}"]
    if one.entry:
        notes.append(f"of each, the entry {one.entry!r}")
    known = [None] * len(net.weights[0]) if stacked else [read.step for read in many]
    return _with_steps(net, known, steps, tuple(notes))


def _checkpoints(source: object) -> list[NamedArrays]:
    """What the source holds, in the order of its steps."""
    if isinstance(source, str | Path) and Path(source).expanduser().is_dir():
        folder = Path(source).expanduser()
        files = sorted(path for path in folder.iterdir() if path.suffix in READABLE)
        if not files:
            raise ValueError(f"{folder} has no file that ends in one of {listed(READABLE)}.")
        read = [_file(path) for path in files]
        unnumbered = [one.where for one in read if one.step is None]
        if unnumbered and len(read) > 1:
            raise ValueError(
                f"{unnumbered[0]} has no number in its name and no step inside, so that the order "
                f"of the {len(read)} files is not known: pass a list of paths, in order."
            )
        return sorted(read, key=_step)
    if isinstance(source, list | tuple):
        if not source:
            raise ValueError("the list of checkpoints is empty.")
        return [_file(one) if isinstance(one, str | Path) else read_arrays(one) for one in source]
    return [read_arrays(source)]


def _file(path: str | Path) -> NamedArrays:
    """Read a file, whose name may say the step."""
    read = read_arrays(path)
    numbers = re.findall(r"\d+", Path(path).stem)
    return read if read.step is not None or not numbers else read._replace(step=int(numbers[-1]))


def _step(read: NamedArrays) -> int:
    return -1 if read.step is None else read.step


def _is_stacked(read: NamedArrays) -> bool:
    """Whether all arrays have one more axis than those of layers, of one length."""
    arrays = [a for a in read.arrays.values() if a.ndim]
    lengths = {a.shape[0] for a in arrays}
    return (
        {a.ndim for a in arrays} <= {2, 3}
        and max(a.ndim for a in arrays) == 3
        and (len(lengths) == 1)
    )


def _sliced(read: NamedArrays) -> NamedArrays:
    return read._replace(arrays={k: a[0] for k, a in read.arrays.items() if a.ndim})


def _names(layout: Layout) -> list[str]:
    return [name for layer in layout.layers for name in (layer.weight, layer.bias) if name]


def _check_same(layout: Layout, first: NamedArrays, read: NamedArrays) -> None:
    for name in _names(layout):
        shape = first.arrays[name].shape
        other = read.arrays.get(name)
        if other is None or other.shape != shape:
            has = f"{name} of shape {other.shape}" if other is not None else f"no {name}"
            raise ValueError(f"{read.where} has {has}; {first.where} has it of shape {shape}.")


def _stack(layout: Layout, many: Sequence[NamedArrays]) -> Mapping[str, np.ndarray]:
    return {name: np.stack([read.arrays[name] for read in many]) for name in _names(layout)}


def _with_steps(
    net: ReLUNetwork,
    known: Sequence[int | None],
    given: ArrayLike | Sequence[int] | None,
    notes: tuple[str, ...],
) -> History:
    count = len(known)
    if given is not None:
        steps = np.asarray(given)
        if steps.shape != (count,) or steps.dtype.kind not in "iu":
            raise ValueError(
                f"steps has shape {steps.shape} and dtype {steps.dtype}; expected one whole number "
                f"for each of {count} checkpoints."
            )
    elif any(step is None for step in known):
        steps = np.arange(count)
        if count > 1:
            notes = (
                *notes,
                f"assumed: the checkpoints are equally far apart, steps 0 to {count - 1}",
            )
    else:
        steps = np.array(known, int)
    if np.any(np.diff(steps) <= 0):
        k = int(np.argmax(np.diff(steps) <= 0))
        raise ValueError(
            f"the steps do not increase: {steps[k]} and then {steps[k + 1]}; pass steps=[...]."
        )
    return History(steps.astype(int), net, notes)
