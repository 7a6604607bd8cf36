"""What solvers and training return: times, losses, a status, and what was asked for.

A run that fails raises `SolveError`, or with `throw=False`, and always under `jit` and `vmap`,
says so in its `status` and holds NaN wherever it did not get to.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from gdln_jax._checks import Instead, is_concrete, variable_name
from gdln_jax._checks.html import curve, panel, table
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.gated import GatedData
from gdln_jax._data.schedule import Schedule
from gdln_jax._network.edges import EdgeArrays
from gdln_jax._network.gated import GatedNetwork, learning
from gdln_jax._network.pathways import Pathways, product
from gdln_jax._network.recorded import data_set

if TYPE_CHECKING:
    import xarray as xr

# Trajectories of whole models above this size (per run) are not kept unless asked for.
KEEP_BYTES = 256 * 2**20

# A loss within this share of its first value looks flat in any plot.
FLAT = 0.01

OK, DIVERGED, GAVE_UP = 0, 1, 2
STATUS = {OK: "ok", DIVERGED: "diverged (loss is not finite)", GAVE_UP: "the solver gave up"}

Model = PyTree


class SolveError(RuntimeError):
    """A run that did not get to its end: training diverged, or an ODE solver gave up.

    `solution` is what there is of the run, as `throw=False` returns it: NaN where it did not get
    to. It is None where nothing was kept.
    """

    def __init__(self, message: str, solution: Any = None):
        super().__init__(message)
        self.solution = solution


class PlateauWarning(UserWarning):
    """The run ended on the initial plateau: the loss is still that of zero output."""


@runtime_checkable
class Reads(Protocol):
    """What reads networks in frames of its own: a `Reduction`."""

    def read(self, net: GatedNetwork) -> tuple[EdgeArrays, dict[str, Array]]:
        """Return strengths, and shares outside."""
        ...

    def pathways(self, run: "Trajectory", *, by: str) -> Pathways:
        """Return the strengths of its pathways."""
        ...


class Solution(SeveralArrays, eqx.Module):
    """A learning run of any kind.

    - `ts`: (time,), units of time for flows, numbers of steps for discrete training.
    - `losses`: (time,), NaN where the run had already failed.
    - `status`: 0 ok, 1 diverged, 2 the solver gave up: keys of `gdln.STATUS`.
    - `stats`: numbers of steps taken and rejected, where the solver counts them.

    Under `vmap` every array has the batch axes in front and a failed member spoils no other:
    look at `status`.
    """

    _instead = Instead(
        model="it is the result of a run: pass the network of it that you mean, say run.final"
    )
    _asked: ClassVar = dict.fromkeys(("t", "time", "times", "steps"), "the times are .ts") | {
        "success": "see .status, and gdln.STATUS for what its numbers mean"
    }

    ts: Float[Array, "*batch time"] | Int[Array, "*batch time"]
    losses: Float[Array, "*batch time"]
    status: Int[Array, "*batch"]
    stats: dict[str, Int[Array, "*batch"]]

    def product(self, path: Sequence[str]) -> Array:
        """Return the product of what the edges of `path` hold, at every time of `ts`.

        Args:
            path: names of edges, the first to act first; each begins where the one before ends.

        Returns:
            Of networks W_last ... W_first, (time, |target|, |source|); of strengths their
            products (time, mode), of mode matrices (time, mode, mode).

        Raises:
            ValueError: models that were not kept or have no edges; names that form no path.
        """
        return product(self._edges(), path)

    def to_xarray(self) -> "xr.Dataset":
        """Return the run as an xarray `Dataset`, which writes itself to netCDF.

        The dimension `time` holds `ts`; axes of a batch come first, as `batch_0`, ...; attributes
        name the clock and the versions of gdln_jax and JAX that computed it.

        Raises:
            ValueError: values that cannot be seen, under `jit` or `vmap`.
        """
        status = "; ".join(f"{code}: {words}" for code, words in STATUS.items())
        variables = {
            "losses": (("time",), self.losses),
            "status": ((), self.status, {"long_name": status}),
            **{name: ((), value) for name, value in self.stats.items()},
            **self._contents(),
        }
        batch = self.losses.ndim - 1
        return data_set(self, self.ts, batch, variables, self._coordinates())

    def _edges(self) -> EdgeArrays:
        """What each edge holds at every time."""
        raise NotImplementedError

    def _contents(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        """What `to_xarray` holds beside the losses: name -> (dimensions, values)."""
        raise NotImplementedError

    def _coordinates(self) -> dict[str, list]:
        """Labels of the dimensions of `_contents`."""
        return {}

    def _repr_html_(self) -> str:
        if not is_concrete(self) or self.losses.ndim != 1:
            return panel(repr(self))
        ts, losses = np.asarray(self.ts), np.asarray(self.losses)
        steps = np.issubdtype(ts.dtype, np.integer)
        rows = [
            ("steps" if steps else "time, in tau", f"{ts[0]:g} to {ts[-1]:g}"),
            ("loss", f"{losses[0]:.6g} to {losses[-1]:.6g}"),
            ("status", STATUS[int(self.status)]),
            *((name.replace("_", " "), int(value)) for name, value in self.stats.items()),
        ]
        return panel(repr(self), curve(ts.tolist(), losses.tolist()), table(("", ""), rows))

    def _described(self) -> list[str]:
        """Times, losses and status for `repr`."""
        lines = [f"{self.ts.shape[-1]} times"]
        if not isinstance(self.losses, jax.core.Tracer) and isinstance(self.losses, jax.Array):
            if self.losses.ndim == 1:
                lines.append(f"loss {float(self.losses[0]):.6g} -> {float(self.losses[-1]):.6g}")
            else:
                lines.append(f"batch {self.losses.shape[:-1]}")
            codes, counts = np.unique(np.asarray(self.status), return_counts=True)
            lines += [f"{n} x {STATUS[int(c)]}" for c, n in zip(codes, counts, strict=True)]
        return lines


class Trajectory(Solution):
    """A learning run of a model, continuous (`gradient_flow`) or discrete (`train`).

    Beside what every `Solution` has:

    - `models`: the model at every `ts`, stacked along a leading axis; `None` when not kept.
    - `final`: the model at the last time.
    - `measured`: what `measure` returned at every `ts`, stacked; `None` without one.
    - `optimizer_state`: that of `train` after the last step, for `train(..., resume=)`.
    """

    _asked: ClassVar = {
        **Solution._asked,
        **dict.fromkeys(
            ("weights", "params", "parameters", "network", "net"),
            "the network at the end is .final, those at all times are .models, each with .weights",
        ),
    }

    models: Model
    final: Model
    measured: PyTree
    optimizer_state: PyTree = None

    def model(self, index: int) -> Model:
        """Return the model at `ts[index]` of an unbatched run."""
        return jax.tree.map(
            lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, self._kept_models()
        )

    def pathways(self, reduction: Reads, *, by: str = "path") -> Pathways:
        """Return the strengths of all pathways over time: `reduction.pathways(run)`.

        Raises:
            ValueError: as `Reduction.pathways`; what is no reduction.
        """
        if not isinstance(reduction, Reads):
            raise ValueError(
                f"reduction is a {type(reduction).__name__}; a run of networks is read in the "
                "frames of a reduction: pass gdln.reduce(graph, data)."
            )
        return reduction.pathways(self, by=by)

    def _kept_models(self) -> Model:
        if self.models is None:
            raise ValueError(
                "the models of this run were not kept (only `final` was): pass keep_models=True, "
                "or measure= a function of the model."
            )
        return self.models

    def _edges(self) -> EdgeArrays:
        models = self._kept_models()
        if not isinstance(models, GatedNetwork):
            raise ValueError(
                f"the models of this run are of type {type(models).__name__}, which has no edges "
                "of a graph; pass measure= the product that you want."
            )
        return models.weights

    def to_xarray(self, data: GatedData | None = None) -> "xr.Dataset":
        """Return the run as an xarray `Dataset`, which writes itself to netCDF.

        The dimension `time` holds `ts`; axes of a batch come first, as `batch_0`, ...; attributes
        name the clock and the versions of gdln_jax and JAX that computed it.

        Args:
            data: whose names of features label the units of input and output nodes.

        Raises:
            ValueError: values that cannot be seen, under `jit` or `vmap`; data with names for
                nodes that the kept models do not have.
        """
        shown = super().to_xarray()
        if data is None:
            return shown
        named = {node: names.features for node, names in data.names.items() if names.features}
        labels = {variable_name(f"unit of {node}"): list(texts) for node, texts in named.items()}
        wrong = [unit for unit in labels if shown.sizes.get(unit) != len(labels[unit])]
        if wrong:
            raise ValueError(
                f"data has {len(labels[wrong[0]])} names for {wrong[0]!r}, of which this run has "
                f"{shown.sizes.get(wrong[0], 0)}: pass the data of its networks, and keep_models="
                "True to the run if it has none."
            )
        return shown.assign_coords(labels)

    def _contents(self) -> dict[str, tuple[tuple[str, ...], Array]]:
        contents = {}
        if isinstance(self.models, GatedNetwork):
            for edge in self.models.graph.edges:
                dims = ("time", f"unit of {edge.target}", f"unit of {edge.source}")
                contents[f"weights[{edge.name}]"] = (dims, self.models.weights[edge.name])
        elif self.models is not None:
            contents |= self._leaves("models", self.models)
        return contents | self._leaves("measured", self.measured)

    def _leaves(self, name: str, tree: PyTree) -> dict[str, tuple[tuple[str, ...], Array]]:
        batch = self.losses.ndim - 1
        found = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if eqx.is_array(leaf):
                full = name + jax.tree_util.keystr(path)
                inner = (f"{full} axis {k}" for k in range(leaf.ndim - batch - 1))
                found[full] = (("time", *inner), leaf)
        return found

    def __repr__(self) -> str:
        kept = "models kept" if self.models is not None else "final model kept"
        first, *rest = self._described()
        return f"Trajectory({', '.join([first, kept, *rest])})"


def raise_if_failed(solution: Solution, reason: Callable[[], str]) -> None:
    """Raise `SolveError` with `reason()` for one run whose status is known and is not 0."""
    if is_concrete(solution) and int(solution.status) != OK:
        raise SolveError(reason(), solution)


def check_resume(
    resume: object,
    kind: type[Solution],
    pairs: Callable[[Any], dict[str, tuple[PyTree, PyTree]]],
    restart: str,
) -> None:
    """Refuse to continue from what is not one run of `kind` with its optimiser's state.

    Args:
        kind: the type that training returns.
        pairs: `resume` -> {name: (what this run needs, what `resume` holds)}; each two must agree
            in structure, shapes and precision.
        restart: how to start from the end of a run instead, as the user writes it.
    """
    if not isinstance(resume, kind) or getattr(resume, "optimizer_state", None) is None:
        given = "a gradient flow" if isinstance(resume, kind) else type(resume).__name__
        raise ValueError(
            f"resume is {given}, without the state of an optimiser; pass the {kind.__name__} that "
            f"train returned, or start again, {restart}."
        )
    if resume.losses.ndim != 1:
        raise ValueError(
            f"resume is a batch of runs, of shape {resume.losses.shape[:-1]}; map over it with "
            "jax.vmap, together with the starts."
        )
    if is_concrete(resume.status) and int(resume.status) != OK:
        raise ValueError("resume is a run that diverged; nothing can be continued from there.")
    for name, trees in pairs(resume).items():
        here, there = (
            (jax.tree.structure(tree), [(w.shape, w.dtype) for w in jax.tree.leaves(tree)])
            for tree in trees
        )
        if here != there:
            raise ValueError(
                f"resume is a run of another {name}: structure, shapes or precision differ. Pass "
                f"the {name} of that run, or start again, {restart}."
            )


def check_measure(measure: object) -> None:
    """Raise `ValueError` unless `measure` is None or can be called."""
    if measure is not None and not callable(measure):
        raise ValueError(
            f"measure is {measure!r}; pass a function of the model, such as lambda net: "
            "net.weights['x->h']."
        )


def keeps_models(keep: bool | None, measure: object, model: Model, saves: int) -> bool:
    """Decide whether to stack the models: as asked, else if small and nothing is measured."""
    if keep is not None:
        return keep
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    size = saves * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return measure is None and size <= KEEP_BYTES


def warn_of_plateau(
    trajectory: Trajectory, model: Model, data: object, loss: Callable[..., Array]
) -> None:
    """Warn, for one run whose values can be seen, when it ends where a network of weights 0 is.

    A flat loss is no proof (a trained network has one too), so it is compared with that of the
    same model with all weights 0, which costs a compilation and therefore comes last. Under a
    `Schedule` the loss must be that of weights 0 at all times, each with its data.
    """
    losses = trajectory.losses
    if isinstance(losses, jax.core.Tracer) or losses.ndim != 1:
        return
    known = np.asarray(losses)
    if isinstance(data, Schedule):
        phases = np.searchsorted(np.asarray(data.switches), np.asarray(trajectory.ts), side="right")
        parts = [(known[phases == p], data.phase(int(p))) for p in np.unique(phases)]
    else:
        parts = [(known[np.array([0, -1])], data)]
    if not all(_flat(part, float(part[0])) for part, _ in parts):
        return
    moving, still = eqx.partition(model, learning(model))
    silent = eqx.combine(jax.tree.map(jnp.zeros_like, moving), still)
    nothing = 0.0
    for part, there in parts:
        nothing = float(eqx.filter_jit(loss)(silent, there))
        if not _flat(part, nothing):
            return
    if not any(np.any(w) for w in jax.tree.leaves(moving)):
        why = (
            "All initial weights are 0, a stationary point that gradients never leave: draw them, "
            "for example gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=key)"
        )
    elif eqx.tree_equal(model, trajectory.final):
        why = (
            "No weight moved: the optimiser freezes every edge (its updates are 0), gates are "
            "closed, or targets are uncorrelated with the inputs"
        )
    else:
        why = (
            "Small weights grow slowly at first. Run longer, or start larger (for example "
            "gdln.init.orthogonal(0.1)): with one hidden layer the plateau lasts as the logarithm "
            "of 1 / initial amplitude, with more layers as a power of it. If it never ends, look "
            "for closed gates, or targets that are uncorrelated with the inputs"
        )
    warnings.warn(
        f"nothing was learned: the loss went from {known[0]:.6g} to {known[-1]:.6g}, and a network "
        f"that predicts 0 has {nothing:.6g}. {why}.",
        PlateauWarning,
        stacklevel=4,  # past `answering`
    )


def _flat(losses: np.ndarray, wanted: float) -> bool:
    return bool(np.all(np.abs(losses - wanted) <= FLAT * abs(wanted)))
