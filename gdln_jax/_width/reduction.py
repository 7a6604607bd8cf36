"""The result of `reduce_width`: a small network that trains exactly like a wide one."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PyTree

from gdln_jax import Trajectory, gradient_flow, train
from gdln_jax._checks import Result, Suggesting
from gdln_jax._checks.html import panel
from gdln_jax._checks.types import ArrayLike, PRNGKeyArray, Times
from gdln_jax._data.gated import GatedData
from gdln_jax._network.gated import GatedNetwork, check_network
from gdln_jax._network.losses import mse
from gdln_jax._width.exactness import Data, Loss, check_rule
from gdln_jax._width.examples import open_ways, table_of
from gdln_jax._width.measured import OF_WEIGHTS, of_weights, refusal, shared
from gdln_jax._width.rest import Factor, Rest, descent_factor, flow_factor, lifted

if TYPE_CHECKING:
    import xarray as xr

Run = Callable[[GatedNetwork, Data], Array | np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WidthReduction(Result):
    r"""A small network that stands for a wide one, exactly if `closed` (theory#width).

    Gradient flow and gradient descent of the wide network stay of the form
    $W_e(t) = R_t w_e(t) R_s^T + c(t) [W_e(0) - P_t W_e(0) P_s]$ with $P = R R^T$, where w_e(t) is
    the same flow or descent of the small network. Losses and outputs are equal; so is the
    tangent kernel if outputs are complete. For a stack of seeds every array has its axes in front.

    Attributes:
        net: the small network w_e(0).
        data: the data for it, inputs R^T x; usable in `train`, `gradient_flow`, `reduce`, `sweep`.
        sizes: node -> dimensions that are used; an array over seeds for a stack.
        frames: node -> R (width, size in `net`). Columns beyond `sizes` are 0: padding, so that
            nodes of one class and all seeds have one size. Padded weights stay exactly 0. Of
            `draw_width`, input and output nodes only.
        closed: whether the small network is exact.
        leak: largest of `leaks`, the share of ||W_e|| by which images of the frames of a live edge
            leave the frames. It certifies that a reduction is closed. It is no measure of the
            error of a truncation, for which `defect` is an estimate.
        leaks: live edge -> leak.
        rounds: how often directions were sent through the network.
        expected: node -> size by formula, `None` where there is none.
        outputs: "complete" or "span".
    """

    net: GatedNetwork
    data: Data
    sizes: Mapping[str, int | np.ndarray]
    frames: Mapping[str, Array]
    closed: bool
    leak: float
    leaks: Mapping[str, float]
    rounds: int
    expected: Mapping[str, int | None]
    outputs: str
    _source: Data
    _wide: GatedNetwork | None
    _refine: Callable[[], "WidthReduction"]

    @property
    def rest(self) -> Mapping[str, Array]:
        """Edge -> W_e(0) - P_t W_e(0) P_s, which no gradient reaches; made when asked for."""
        return Rest(self._known_wide("the rest"), self.net, self.frames)

    def rest_factor(
        self,
        optimizer: optax.GradientTransformation | None = None,
        steps: int | None = None,
        *,
        decay: float | None = None,
        t: float | None = None,
        tau: float = 1.0,
    ) -> Factor:
        """Return c, the factor of the rest after steps of an optimiser or a time of the flow.

        Args:
            optimizer: from optax; it is run with gradient 0.
            steps: number of its steps.
            decay: of `flow`; c = exp(-decay t / tau).
            t: time, in units of `tau`.
            tau: time constant of the flow.

        Returns:
            One number, or a mapping edge -> number if the optimiser treats edges differently.

        Raises:
            ValueError: unless exactly (optimizer, steps) or (decay, t) are given.
        """
        if optimizer is not None and steps is not None and decay is None and t is None:
            return descent_factor(self.net, optimizer, steps)
        if optimizer is None and steps is None and decay is not None and t is not None:
            return flow_factor(float(decay), float(t), tau)
        raise ValueError("pass optimizer and steps, or decay= and t=, and not some of both.")

    def lift(self, small: GatedNetwork, rest: Factor = 1.0) -> GatedNetwork:
        """Return the wide network that a small one stands for.

        Exact for a closed reduction. Of a truncation it gives back W(0) at the start and is an
        approximation afterwards.

        Args:
            small: a network of the graph of `net`, say of a run; leading axes are allowed.
            rest: the factor c of the rest, as `rest_factor` returns it; 1 without weight decay.

        Raises:
            ValueError: for a network of another graph, and for `draw_width`, which has no wide
                network.
        """
        wide = self._known_wide("the wide weights")
        self._check_small(small)
        return lifted(wide, self.net, small, self.frames, rest)

    def followed(self, node: str) -> Bool[np.ndarray, " n"]:
        """Return on which examples the activity of `node` is R_v times that of the small network.

        Those with an open way from the node to an output node; the others have no influence on
        learning and are not followed. Needs `GatedData`.
        """
        if not isinstance(self._source, GatedData):
            raise ValueError("followed() needs a reduction of GatedData, not of packed data.")
        if node not in self.net.graph.nodes:
            raise ValueError(
                f"the network has no node {node!r}; nodes: {list(self.net.graph.nodes)}."
            )
        none = np.zeros(self._source.num_examples, bool)
        return open_ways(self.net.graph, table_of(self.net.graph, self._source)).get(node, none)

    def measure(
        self,
        fn: Callable[..., PyTree],
        small: GatedNetwork,
        rest: Factor = 1.0,
        *,
        node: str | None = None,
    ) -> PyTree:
        """Measure the wide network at the state of a small one.

        - Losses, `measures.empirical_ntk` (complete outputs) and
          `measures.representational_similarity` (with `node`; NaN for examples that are not
          `followed`) are read off the small network.
        - `measures.singular_values` and `jnp.linalg.norm` (one answer per edge),
          `measures.balancedness`, `measures.weight_movement` (from the start) and
          `optax.global_norm` see the rest and are read off the lifted network, at the cost of its
          width.

        Args:
            fn: the measure.
            small: a network of the graph of `net`; leading axes are allowed.
            rest: as in `lift`.
            node: for `representational_similarity`.

        Raises:
            ValueError: that names the measure, for any other.
        """
        self._check_small(small)
        span = self.outputs == "span"
        if fn in OF_WEIGHTS:
            wide = self._known_wide("measures of all weights")
            return of_weights(fn, wide, self.lift(small, rest))
        found = shared(fn, small, self.data, span, node, self.followed)
        if found is NotImplemented:
            raise ValueError(refusal(fn, span))
        return found

    def train(
        self,
        *,
        optimizer: optax.GradientTransformation,
        steps: int,
        loss: Loss = mse,
        save_every: int = 1,
        batch_size: int | None = None,
        key: PRNGKeyArray | None = None,
        measure: Callable[[PyTree], PyTree] | None = None,
        keep_models: bool | None = None,
    ) -> "WidthRun":
        """Train the small network as `gdln.train` does, after a test that the rule is exact.

        The test compares three updates of the small network with those of one of twice its width,
        from random weights and with a large rest. Minibatches and, with complete outputs, any loss
        of the outputs are exact. `measure` sees the small network.

        Raises:
            InexactRuleError: with the distance found, for Adam, sign and other element-wise rules,
                rules that read the norm of weights, and L2 inside a normalised rule.
            ValueError: for another loss than `mse` where outputs are spans of targets.
        """
        self._check_loss(loss)
        one = jax.tree.map(lambda leaf: leaf[(0,) * len(self.batch)], self.net)
        check_rule(one, self._first_data(), optimizer, loss)

        def run(net: GatedNetwork, data: Data, look: Callable | None, keep: bool | None) -> PyTree:
            return train(
                net,
                data,
                optimizer=optimizer,
                steps=steps,
                loss=loss,
                save_every=save_every,
                batch_size=batch_size,
                key=key,
                measure=look,
                keep_models=keep,
            )

        def factor(t: float) -> Factor:
            return descent_factor(self.net, optimizer, round(t))

        return self._run(run, measure, keep_models, factor)

    def flow(
        self,
        ts: Times,
        *,
        tau: float = 1.0,
        decay: float = 0.0,
        loss: Loss = mse,
        rtol: float | None = None,
        atol: float | None = None,
        measure: Callable[[PyTree], PyTree] | None = None,
        keep_models: bool | None = None,
    ) -> "WidthRun":
        r"""Solve $\tau \dot W = -\partial L/\partial W - $ `decay` $W$ in the small network.

        Other arguments as in `gdln.gradient_flow`. Recorded losses are without the decay.

        Raises:
            ValueError: for a negative `decay`, and for another loss than `mse` where outputs are
                spans of targets.
        """
        self._check_loss(loss)
        flow_factor(decay, 0.0, tau)

        def run(net: GatedNetwork, data: Data, look: Callable | None, keep: bool | None) -> PyTree:
            given = {"tau": tau, "rtol": rtol, "atol": atol}
            if decay == 0:
                return gradient_flow(
                    net, data, ts, loss=loss, measure=look, keep_models=keep, **given
                )
            packed = net.prepare(data)

            def both(here: GatedNetwork) -> tuple[Array, PyTree]:
                return loss(here, packed), None if look is None else look(here)

            done = gradient_flow(
                net,
                packed,
                ts,
                loss=Decayed(loss, jnp.asarray(decay)),
                measure=both,
                keep_models=look is None if keep is None else keep,
                **given,
            )
            assert done.measured is not None
            losses, seen = done.measured
            return eqx.tree_at(
                lambda d: (d.losses, d.measured),
                done,
                (losses, seen),
                is_leaf=lambda leaf: leaf is done.measured,
            )

        return self._run(run, measure, keep_models, lambda t: flow_factor(decay, t, tau))

    def refined(self) -> "WidthReduction":
        """Return the reduction with one round more.

        Raises:
            ValueError: for a closed reduction, which has nothing to add.
        """
        if self.closed:
            raise ValueError("this reduction is closed: it is exact, and no round adds to it.")
        return self._refine()

    def defect(self, trajectory: "WidthRun | Run") -> float:
        """Estimate the error of a truncation: max_t |L_K(t) - L_(K+1)(t)| / L_K(0).

        An estimate, no bound: K + 1 is one round more. Over runs of three and four layers it was
        within a factor 1.5 of the true distance. 0 for a closed reduction.

        Args:
            trajectory: a run of `train` or `flow`, which is repeated with one round more; or a
                function (net, data) -> losses (..., time), which is run for both.
        """
        if self.closed:
            return 0.0
        if isinstance(trajectory, WidthRun):
            again, here = trajectory.again, trajectory.losses
        else:
            again, here = trajectory, trajectory(self.net, self.data)
        finer = self.refined()
        there, here = np.asarray(again(finer.net, finer.data)), np.asarray(here)
        return float(np.max(np.abs(there - here) / here[..., :1]))

    @property
    def batch(self) -> tuple[int, ...]:
        """Axes of a stack of seeds; () for one network."""
        return self.net.stacks[0].shape[:-3]

    def _run(
        self,
        run: Callable[[GatedNetwork, Data, Callable | None, bool | None], Trajectory],
        measure: Callable | None,
        keep_models: bool | None,
        factor: Callable[[float], Factor],
    ) -> "WidthRun":
        axes, mapped = len(self.batch), self._data_axes

        def over_seeds(
            net: GatedNetwork, data: Data, look: Callable | None, keep: bool | None
        ) -> Trajectory:
            one = lambda a, b: run(a, b, look, keep)  # noqa: E731
            for _ in range(axes):
                one = jax.vmap(one, (0, 0 if mapped else None))
            return one(net, data)

        return WidthRun(
            over_seeds(self.net, self.data, measure, keep_models),
            self,
            factor,
            lambda net, data: over_seeds(net, data, None, False).losses,
        )

    @property
    def _data_axes(self) -> bool:
        """Whether the data have the axes of the seeds: targets in the frames of each seed."""
        return bool(self.batch) and self.outputs == "span"

    def _first_data(self) -> Data:
        if not self._data_axes:
            return self.data
        return jax.tree.map(lambda leaf: leaf[(0,) * len(self.batch)], self.data)

    def _check_loss(self, loss: object) -> None:
        if self.outputs == "span" and loss is not mse:
            raise ValueError(
                "outputs='span' keeps the space of the targets only, which is exact for gdln.mse; "
                "reduce with outputs='complete' for another loss."
            )

    def _check_small(self, small: GatedNetwork) -> None:
        check_network(small, "small")
        if small.graph != self.net.graph:
            raise ValueError(
                "small has another graph than the small network of this reduction; pass networks "
                "of runs that start from its .net."
            )

    def _known_wide(self, what: str) -> GatedNetwork:
        if self._wide is None:
            raise ValueError(
                f"draw_width draws the small network only, so {what} do not exist; draw a wide "
                "network with GatedNetwork.init and pass it to reduce_width."
            )
        return self._wide

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}:{_span(v)}" for k, v in list(self.sizes.items())[:8])
        more = ", ..." if len(self.sizes) > 8 else ""
        kind = "closed" if self.closed else f"truncated after {self.rounds} rounds"
        return f"WidthReduction({kind}, sizes [{shown}{more}], leak {self.leak:.1e})"


class Decayed(eqx.Module):
    """loss(model, data) + decay/2 |W|^2."""

    loss: Loss
    decay: Array

    def __call__(self, model: PyTree, data: object) -> Array:
        """Return the loss with the penalty."""
        squares = [jnp.sum(jnp.square(stack)) for stack in model.stacks]
        return self.loss(model, data) + 0.5 * self.decay * jnp.sum(jnp.stack(squares))


@dataclasses.dataclass(frozen=True, eq=False)
class WidthRun(Suggesting):
    """A run of the small network.

    Attributes:
        trajectory: the run itself, of `gdln.train` or `gdln.gradient_flow`.
        reduction: the reduction whose network it trains.
        factor: time or step -> factor c of the rest.
        again: runs the same on another network and its data, and returns losses.
    """

    trajectory: Trajectory
    reduction: WidthReduction
    factor: Callable[[float], Factor]
    again: Run

    @property
    def ts(self) -> Array:
        """Times or steps (..., time)."""
        return self.trajectory.ts

    @property
    def losses(self) -> Float[Array, "... time"]:
        """Losses, equal to those of the wide network."""
        return self.trajectory.losses

    @property
    def final(self) -> GatedNetwork:
        """The small network at the end."""
        return self.trajectory.final

    @property
    def measured(self) -> PyTree:
        """What `measure` returned of the small network."""
        return self.trajectory.measured

    def small(self, index: int = -1) -> GatedNetwork:
        """Return the small network at `ts[index]`; at the end if models were not kept."""
        axes = (slice(None),) * len(self.reduction.batch)
        if self.trajectory.models is None:
            if index in (-1, self.ts.shape[-1] - 1):
                return self.final
            raise ValueError("the models were not kept: pass keep_models=True.")
        return jax.tree.map(lambda leaf: leaf[(*axes, index)], self.trajectory.models)

    def lift(self, index: int = -1) -> GatedNetwork:
        """Return the wide network at `ts[index]`, its rest decayed as the rule does."""
        t = float(np.ravel(np.asarray(self.ts[..., index]))[0])
        return self.reduction.lift(self.small(index), self.factor(t))

    def to_xarray(self) -> "xr.Dataset":
        """Return the run of the small network, as `Trajectory.to_xarray` does."""
        return self.trajectory.to_xarray().assign_attrs(kind="WidthRun")

    def _repr_html_(self) -> str:
        return panel(repr(self.reduction), self.trajectory._repr_html_())

    def __repr__(self) -> str:
        return f"WidthRun({self.trajectory!r} of {self.reduction!r})"


def _span(size: ArrayLike) -> str:
    known = np.asarray(size)
    low, high = int(known.min()), int(known.max())
    return str(low) if low == high else f"{low}-{high}"
