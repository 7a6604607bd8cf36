"""Simulated races: networks with one pathway per view, by gradient flow of all their weights.

The data are `tasks.multiview`; a set-up is a presence, view strengths, labels and initial weights,
which enter one compiled program per depth and loss as arrays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from gdln_jax import GatedData, GatedNetwork, Graph, gradient_flow, init, mse, reduce, tasks
from gdln_jax.race import Pathways

CLASSES, VIEWS, WIDTH = 4, 3, 16
UNEQUAL = (1.0, 0.9, 0.8)
EQUAL = (1.0, 1.0, 1.0)
_RTOL = 1e-8


@dataclass(frozen=True)
class Setup:
    """One set-up: `gain` of Xavier weights, or None for aligned weights of strength u0 per layer.

    Aligned starts differ between seeds in u0 = `u0` exp(`spread` z), one z per pathway.
    """

    name: str
    strengths: tuple[float, ...] = EQUAL
    presence: float = 1.0
    labels: float | str | None = None
    gain: float | None = None
    u0: float = 0.1
    spread: float = 0.2

    def task(self, layers: int) -> tasks.Task:
        """Its task; all tasks of one depth and one kind of presence have arrays of one shape."""
        return tasks.multiview(
            CLASSES, VIEWS, strengths=self.strengths, presence=self.presence,
            soft_labels=self.labels, width=WIDTH, hidden_layers=layers,
        )  # fmt: skip

    def listed_task(self, layers: int) -> tasks.Task:
        """The same with every combination of views listed, those that never occur at weight 0."""
        some = tasks.multiview(
            CLASSES, VIEWS, strengths=self.strengths, presence=0.5,
            soft_labels=self.labels, width=WIDTH, hidden_layers=layers,
        )  # fmt: skip
        shown = some.meta["present"]
        chance = np.prod(np.where(shown == 1, self.presence, 1 - self.presence), axis=1)
        weights = jnp.asarray(chance / chance.sum())
        return eqx.tree_at(lambda task: task.data.weights, some, weights)


@dataclass(frozen=True)
class Races:
    """What the networks of one depth did.

    - `share` (setup, seed, class, time, view): what a view adds to the output of its class when it
      is shown; for targets 1 and views that always occur together the shares sum to 1.
    - `alone` (setup, seed): fraction of (class, view) pairs named rightly from this view alone.
    - `advantage` (setup, seed, class, view): R's sigma s(0), up to a factor that all views share:
      the view's strength times the norm of the class's column of the pathway's map at t = 0.
    - `law` (setup, seed, time, view): the share by `Pathways`, of aligned starts (else NaN).
    """

    setups: tuple[Setup, ...]
    layers: int
    ts: np.ndarray
    share: np.ndarray
    losses: np.ndarray
    alone: np.ndarray
    advantage: np.ndarray
    law: np.ndarray
    u0: np.ndarray

    def of(self, name: str) -> np.ndarray:
        """`share` (seed, class, time, view) of one set-up."""
        return self.share[self.index(name)]

    def end(self, name: str) -> np.ndarray:
        """`share` (seed, class, view) at the last time."""
        return self.of(name)[:, :, -1]

    def law_error(self, name: str) -> float:
        """Largest difference of the shares to the law of `Pathways`, of an aligned set-up."""
        return float(np.abs(self.of(name) - self.law[self.index(name)][:, None]).max())

    def index(self, name: str) -> int:
        """Position of the set-up called `name`."""
        return [setup.name for setup in self.setups].index(name)


def simulate(
    setups: Sequence[Setup],
    layers: int,
    ts: np.ndarray,
    seeds: int,
    seed: int,
    loss: Callable[..., Any] = mse,
) -> Races:
    """Follow gradient flow of all set-ups and seeds of one depth together."""
    everywhere = all(setup.presence == 1 for setup in setups)
    made = [s.task(layers) if everywhere else s.listed_task(layers) for s in setups]
    graph = made[0].graph
    u0 = np.stack([_u0(setup, seeds, seed) for setup in setups])
    nets = [_start(graph, s, u, seeds, seed) for s, u in zip(setups, u0, strict=True)]
    data = jax.tree.map(lambda *a: jnp.repeat(jnp.stack(a), seeds, 0), *[t.data for t in made])
    nets = jax.tree.map(lambda *a: jnp.concatenate(a), *nets)
    run, maps = _flow(nets, data, jnp.asarray(ts), loss)
    if np.asarray(run.status).any():
        raise RuntimeError("a gradient flow of the claims was given up by its solver")
    maps = np.asarray(maps).reshape(len(setups), seeds, len(ts), VIEWS, CLASSES, CLASSES)
    strength = np.array([s.strengths for s in setups])
    if loss is mse:
        own = np.einsum("istvkk->isktv", maps)
    else:  # logits: only differences between classes count
        own = np.einsum("istvkk->isktv", maps - maps.mean(axis=-2, keepdims=True))
    named = maps[:, :, -1].argmax(axis=-2) == np.arange(CLASSES)
    return Races(
        tuple(setups),
        layers,
        np.asarray(ts),
        own * strength[:, None, None, None, :],
        np.asarray(run.losses).reshape(len(setups), seeds, -1),
        named.mean(axis=(-1, -2)),
        np.moveaxis(np.linalg.norm(maps[:, :, 0], axis=-2), -1, -2) * strength[:, None, None, :],
        _law(setups, layers, u0, ts),
        u0,
    )


@eqx.filter_jit
def _flow(nets: GatedNetwork, data: GatedData, ts: Any, loss: Callable[..., Any]) -> Any:
    """Trajectories, and the maps (run, time, view, class, class) of the pathways."""

    def maps(net: GatedNetwork) -> Any:
        products = []
        for path in net.graph.paths():
            whole = net.weights[path[0]]
            for edge in path[1:]:
                whole = net.weights[edge] @ whole
            products.append(whole)
        return jnp.stack(products)

    run = jax.vmap(
        lambda net, one: gradient_flow(
            net, one, ts, loss=loss, measure=maps, keep_models=False, rtol=_RTOL
        )
    )(nets, data)
    return run, run.measured


def _u0(setup: Setup, seeds: int, seed: int) -> np.ndarray:
    """Layer strengths (seed, view) of aligned starts; the same draws for every set-up."""
    draws = np.random.default_rng(seed).normal(size=(seeds, VIEWS))
    return setup.u0 * np.exp(setup.spread * draws)


def _start(graph: Graph, setup: Setup, u0: np.ndarray, seeds: int, seed: int) -> GatedNetwork:
    """Initial networks, one per seed."""
    if setup.gain is not None:
        xavier = init.xavier(setup.gain)
        keys = jax.random.split(jax.random.key(seed), seeds)
        return jax.vmap(lambda key: GatedNetwork.init(graph, xavier, key=key))(keys)
    paths = list(graph.paths())
    which = {edge: m for m, path in enumerate(paths) for edge in path}
    stacks = []
    for bundle in graph.bundles:
        members = [which[edge] for edge in bundle.edges]
        stacks.append(jnp.asarray(u0[:, members, None, None] * np.eye(*bundle.shape)))
    return GatedNetwork.from_stacks(graph, tuple(stacks))


def _law(setups: Sequence[Setup], layers: int, u0: np.ndarray, ts: np.ndarray) -> np.ndarray:
    """Shares by the law of `Pathways`, read off the reduction, for aligned starts."""
    found = np.full((*u0.shape[:2], len(ts), VIEWS), np.nan)
    for k, setup in enumerate(setups):
        if setup.gain is None and setup.labels is None:
            model = pathways_of(setup, layers)
            starts = jnp.asarray(u0[k] ** (layers + 1))
            a = jax.vmap(lambda a0, model=model: model.solve(a0, ts))(starts)
            found[k] = np.asarray(a) * np.array(setup.strengths)
    return found


def pathways_of(setup: Setup, layers: int) -> Pathways:
    """The race of a set-up, by `reduce`; all classes (modes) have the same."""
    task = setup.task(layers)
    return Pathways.from_reduction(reduce(task.graph, task.data))
