"""H Fig. 6: the runs, and the numbers that checks, text and figure use."""

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, PRNGKeyArray

from gdln_jax import GatedData, GatedNetwork, Graph, Schedule, Trajectory, init, relu, tasks
from gdln_jax.recipes._core import context_runs as cx
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.depth import Options

REFERENCE_MODE = 71.15  # L(0) - s_1^2/(2 d_1)
PAIRS = {"in_0_1": (0, 1), "in_0_2": (0, 2), "in_1_2": (1, 2)}
FITS = ("mode", "rank_1", "rank_2", "rank_3", "gated_1", "gated_2")
BAND = (0.55, 0.9)  # of L(0): the fit of rank 1 is between, those of gated networks are below
_TIMES, _OUTPUT = ("seed", "time"), ("moment", "example", "feature")


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """ReLU networks with two hidden layers, and gated ones with a shared linear first layer."""
    task = cx.different()
    scale = o.loss_scale or float(task.meta["loss_scale"])
    std = o.std or 6e-4 * np.sqrt(420 / o.width)
    descent = cx.Descent(o.seed, o.seeds, std, scale, o.learning_rate, o.steps, 250)
    progress(0.02, f"{o.seeds} ReLU networks, {o.steps} steps")
    trained = descent.relu(task, o.width, o.width, look=Look)
    opens = o.opens or opening_time(o.learning_rate * descent.step, trained)
    progress(0.35, f"{o.seeds} gated networks, contextual pathways from t = {opens:.2f}")
    runs = {"relu": trained, **gated_networks(o, descent, task, opens)}
    losses, measured = descent.losses(runs), trained.measured
    variables = losses | {
        "identity": ((*_TIMES, "layer"), measured["identity"], "change without the layer's ReLU"),
        "power": ((*_TIMES, "group"), measured["groups"], "share of second-layer units"),
        "shared": ((*_TIMES, "context", "other"), measured["shared"], "power on in both contexts"),
        "opens": ((), opens, "time at which the contextual pathways open"),
        "target": (_OUTPUT[1:], task.meta["y"], "target"),
    }
    for name, value in best_fits(task, scale).items():
        variables[f"fit_{name}"] = ((), value, f"best loss, {name}")
    for kind, output in (("relu", measured["output"]), ("late", runs["late"].measured)):
        loss = np.asarray(losses[f"loss_{kind}"][1])
        one, (_, records) = stereotype(loss), plateau(loss, *BAND)
        values = np.asarray(output)[one, [records[one], -1]]
        variables[f"output_{kind}"] = (_OUTPUT, values, f"output, {kind}")
    coords = descent.coords() | {"layer": [1, 2], "group": list(cx.GROUPS.values())}
    coords |= {"moment": ["first plateau", "end"]}
    return labelled("Two hidden layers, H Fig. 6", coords, variables)


class Look(cx.ReLULook):
    """Also `identity` (2,), the relative change of the output if the ReLU of a layer is replaced by
    the identity; `shared`, which contexts share second-layer units.
    """

    def __call__(self, net: relu.ReLUNetwork) -> dict[str, Array]:
        """Of one network."""
        z1, z2, output = net.pre_activations(self.data.inputs["x"])
        _, second, third = net.weights
        linear = jnp.maximum(z1 @ second.T, 0) @ third.T, z2 @ third.T
        change = [jnp.linalg.norm(a - output) / jnp.linalg.norm(output) for a in linear]
        shared = relu.coactivation(net, self.data, groups=np.array(self.context))
        return super().__call__(net) | {"identity": jnp.stack(change), "shared": shared}


def opening_time(t: np.ndarray, trained: Trajectory) -> float:
    """When the second layer's gates become contextual: the change point of their mean
    `coactivation` since the loss began to fall; before, shares of the output are noise.
    """
    loss = np.mean(np.asarray(trained.losses, float), axis=0)
    learning = loss < 0.9 * loss[0]
    if np.sum(learning) < 2:
        raise OptionError(
            "the ReLU networks have learned nothing by the last step, so that no gates change; "
            "use --set steps= with more, or --set opens=TIME"
        )
    shared = np.mean(np.asarray(trained.measured["shared"], float), axis=0)
    return float(relu.change_points(t[learning], shared[learning], changes=1)[0])


def gated_networks(
    o: Options, descent: cx.Descent, task: tasks.Task, opens: float
) -> dict[str, Trajectory]:
    """H's architecture: one linear first layer, then a common and three double pathways.

    The double pathways are open at once ("equal"), or from the time `opens` on ("late").
    """
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    names, width = ("common", *PAIRS), o.pathway_width or o.width // 2
    edges = [("x", "h"), *(("h", k) for k in names), *((k, "y") for k in names)]
    sizes = {"x": x.shape[1], "h": o.width, **dict.fromkeys(names, width), "y": y.shape[1]}
    graph, gates = Graph(sizes, edges), {k: 1.0 * np.isin(context, on) for k, on in PAIRS.items()}
    open_ = GatedData({"x": x}, {"y": y}, gates)
    closed = GatedData({"x": x}, {"y": y}, dict.fromkeys(PAIRS, np.zeros(len(x))))
    since, seen = int(np.ceil(round(opens / o.learning_rate, 6))), sim.as_type(open_, cx.FLOAT)

    def start(key: PRNGKeyArray) -> GatedNetwork:
        return GatedNetwork.init(graph, init.normal(descent.std), key=key)

    def look(net: GatedNetwork) -> Array:
        return net(seen)["y"]

    return {  # a schedule for both: one program
        kind: descent.train(start, Schedule([first, open_], steps=[since]), look, "gated")
        for kind, first in (("equal", open_), ("late", closed))
    }


def best_fits(task: tasks.Task, scale: float) -> dict[str, float]:
    """Smallest losses of what may have been learned on a plateau.

    H's first mode (its frames do not diagonalise Sigma^x); the best maps of rank 1 to 3; the best
    first layers of rank 1 and 2 with a read-out per context, as common and double pathways give.
    """
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    share = scale / len(x)
    _, s, vt = np.linalg.svd(y.T @ x, full_matrices=False)
    # Reduced-rank regression: singular values of Y on the row space of X.
    left, size, _ = np.linalg.svd(x, full_matrices=False)
    seen = np.linalg.svd(y.T @ left[:, size > 1e-9 * size[0]], compute_uv=False)
    explained = [s[0] ** 2 / np.sum((x @ vt[0]) ** 2), *np.cumsum(seen**2)[:3]]
    losses = [0.5 * (np.sum(y**2) - each) for each in explained]
    losses += [gated_fit(x, y, context, rank) for rank in (1, 2)]
    return {name: share * float(loss) for name, loss in zip(FITS, losses, strict=True)}


def gated_fit(x: np.ndarray, y: np.ndarray, context: np.ndarray, rank: int) -> float:
    """Least squares of y = A_c W x by turns in A and W, the best of three starts."""
    blocks, found = [(x[context == c], y[context == c]) for c in np.unique(context)], []
    for seed in range(3):
        w, loss = np.random.default_rng(seed).normal(size=(rank, x.shape[1])), np.inf
        for _ in range(601):
            fits = [(a, b, np.linalg.lstsq(a @ w.T, b, rcond=None)[0]) for a, b in blocks]
            loss = 0.5 * sum(float(np.sum((b - a @ w.T @ r) ** 2)) for a, b, r in fits)
            gram = sum(np.kron(r @ r.T, a.T @ a) for a, _, r in fits)
            pull = sum((r @ b.T @ a).ravel() for a, b, r in fits)
            w = np.linalg.lstsq(gram, pull, rcond=1e-10)[0].reshape(w.shape)
            w = np.linalg.qr(w.T)[0].T  # only its row space counts
        found.append(loss)
    return min(found)


def stereotype(losses: np.ndarray) -> int:
    """The run nearest to the mean trajectory, by the summed squared distance."""
    return int(np.argmin(np.sum((losses - losses.mean(axis=0)) ** 2, axis=1)))


def plateau(losses: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Runs, and their records between two shares of L(0) at which falling curves move least."""
    between = (losses > low * losses[:, :1]) & (losses < high * losses[:, :1])
    speed = np.where(between, np.abs(np.gradient(losses, axis=1)), np.inf)
    return np.arange(len(losses)), speed.argmin(axis=1)


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data.variables}
    loss, t = {kind: v[f"loss_{kind}"] for kind in ("relu", "equal", "late")}, v["time"]
    start, meta = float(loss["relu"][0, 0]), cx.different().meta
    fits = {f"fit_{name}": float(v[f"fit_{name}"]) for name in FITS}
    levels = np.array([*fits.values()]) / start
    _, high, low, _, gated = (levels[:-1] + levels[1:]) / 2  # between neighbouring fits
    bands = {"plateau": ("relu", *BAND), "late_plateau": ("late", *BAND)}
    bands |= {"second_plateau": ("relu", low, high), "gated_plateau": ("equal", gated, 0.58)}
    at = {name: plateau(loss[kind], *band) for name, (kind, *band) in bands.items()}
    numbers: Numbers = {k: float(np.median(loss[bands[k][0]][at[k]])) for k in bands} | fits
    stereo = {kind: one[stereotype(one)] for kind, one in loss.items()}
    drops = {kind: float(sim.first_below(one, t, 0.9 * start)) for kind, one in stereo.items()}
    for kind, one in stereo.items():
        moved = np.interp(t - drops["relu"] + drops[kind], t, one)
        numbers |= cx.distances(kind, one, stereo["relu"])
        numbers |= cx.distances(f"{kind}_aligned", moved, stereo["relu"])
        half = sim.first_below(loss[kind], t, 0.5 * start)
        numbers |= {f"half_{kind}": float(half.mean()), f"half_{kind}_sd": float(half.std())}
        numbers[f"stereotype_{kind}"] = stereotype(loss[kind])
    flat, ends = (np.median(v["identity"][k], axis=0) for k in (at["plateau"], np.s_[:, -1]))
    return numbers | {
        **dict(zip(cx.GROUPS, np.median(v["power"][:, -1], axis=0), strict=True)),
        "start": start,
        "scale": o.loss_scale or float(meta["loss_scale"]),
        "sums": o.loss_scale in (None, meta["loss_scale"]),
        "mode": abs(fits["fit_mode"] - REFERENCE_MODE),
        "first": (numbers["plateau"] - fits["fit_rank_1"]) / start,
        "second": (numbers["second_plateau"] - fits["fit_rank_2"]) / start,
        "gated": (numbers["gated_plateau"] - fits["fit_gated_1"]) / start,
        "linear_first": float(flat[0]),
        **dict(zip(("linear_end", "gates_end"), ends.tolist(), strict=True)),
        "gates_second": float(np.median(v["identity"][at["second_plateau"]][:, 1])),
        "learned": float(np.median(loss["relu"][:, -1])) / start,
        "opened": float(v["opens"]),
        "how": "given" if o.opens else "the change point of the ReLU networks' second-layer gates",
    }
