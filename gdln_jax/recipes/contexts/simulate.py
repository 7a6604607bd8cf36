"""H Fig. 3-4: the runs, and the numbers that checks, text and figure use."""

import jax
import numpy as np
import xarray as xr
from scipy.optimize import minimize
from scipy.signal import find_peaks

import gdln_jax as gdln
from gdln_jax.recipes._core import context_runs as cx
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.contexts import GATINGS, Options

# Independent values (tests/reference.json, `contextual_task`, `contextual_relu`): sums, 5 seeds.
REFERENCE_LOSSES = {"initial_loss": 105.623, "additive_loss": 16.508433333333336}
REFERENCE_SINGULAR = (27.42500638120751, 14.649566125808512, 10.954451150103326, 9.113014219762253)
REFERENCE_STEPS = (1000, 2000, 3000, 5000, 8000)  # the last is 7999 there
REFERENCE_MEAN = (47.09, 22.87, 8.49, 2.04, 0.0234)
REFERENCE_SD = (0.12, 0.09, 0.09, 0.05, 0.003)
SHOWN = 4  # modes read per pathway
NARROW = 24  # units of a pathway, which the reduction does not depend on
MOMENTS = (0.04, 0.08, 0.13, 0.2, 0.3, 0.45, 0.7, 1.0)  # of the embedding, as shares of the run
_READ, _EXAMPLE = ("seed", "time", "pathway", "mode"), ("example", "feature")


def frames_of(task: gdln.tasks.Task) -> cx.Frames:
    """Singular vectors of what each pathway has to learn; they do not move over time."""
    parts = {h: np.linalg.svd(one, full_matrices=False) for h, one in cx.pathway_maps(task).items()}
    return {h: (u[:, :SHOWN], vt[:SHOWN].T) for h, (u, _, vt) in parts.items()}


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """ReLU and gated networks by descent; the coupled reduction and the flow of its network."""
    plain, right = cx.different(), cx.different(GATINGS["double"], o.width)
    scale, meta = o.loss_scale or float(plain.meta["loss_scale"]), plain.meta
    descent = cx.Descent(o.seed, o.seeds, o.std, scale, o.learning_rate, o.steps, 150)
    progress(0.05, f"{o.seeds} ReLU networks, {o.steps} steps")
    runs = {"relu": descent.relu(plain, o.relu_width)}
    for k, (kind, words) in enumerate(GATINGS.items()):
        progress(0.2 + 0.1 * k, f"{o.seeds} gated networks, {words}")
        task = cx.different(words, o.width)
        runs[kind] = descent.gated(task, frames_of(task))
    progress(0.5, "coupled reduction")
    step, t = descent.step, o.learning_rate * descent.step
    loss = np.median(np.asarray(runs["relu"].losses, float), axis=0)
    variables = theory(o, scale, t, scale * loss)
    common, contextual = np.asarray(variables["factors"][1]).tolist()
    progress(0.75, f"gated networks with scales {common:.3g}, {contextual:.3g}")
    own = {h: common if h == "common" else contextual for h in right.graph.hidden}
    runs["scaled"] = descent.gated(right, frames_of(right), own)
    variables |= descent.losses(runs) | {
        "strength": (_READ, runs["double"].measured["strength"], "u^T W v of each pathway, double"),
        "power": ((*_READ[:2], "group"), runs["relu"].measured["groups"], "share of the output"),
        "target": (_EXAMPLE, meta["y"], "target"),
    }
    # Learning pauses at minima of its speed.
    speed = -np.gradient(np.log(loss), t)
    places = find_peaks(-speed, prominence=0.1 * speed.max())[0]
    chosen = np.append(places[loss[places] < 0.95 * loss[0]][:2], len(t) - 1)
    moments = np.unique(np.round(np.array(MOMENTS) * (len(t) - 1)).astype(int))
    variables |= representations(runs, chosen, moments)
    coords = descent.coords() | {"pathway": list(own), "mode": np.arange(1, SHOWN + 1)}
    coords |= {name: ("example", meta[name] + 1) for name in ("context", "item")}
    coords |= {"plateau": step[chosen], "moment": step[moments], "group": list(cx.GROUPS.values())}
    return labelled("Items in contexts, H Fig. 4", coords, variables)


def theory(o: Options, scale: float, t: np.ndarray, relu_loss: np.ndarray) -> Variables:
    """The coupled reduction at both scales, fitted if asked for, and the flow of its network."""
    task = cx.different(GATINGS["double"], NARROW)
    reduction = gdln.reduce(task.graph, task.data, on_inexact="coupled")
    b0, ways = float(np.sqrt(gdln.expected_initial(o.width, o.std)[0])), cx.pathways(task.graph)

    def solve(factors: np.ndarray, rtol: float | None = None) -> gdln.ReducedTrajectory:
        start = {e: b0 * factors[int(h != "common")] for h, (_, *way) in ways.items() for e in way}
        return reduction.solve(start, t, tau=1 / scale, rtol=rtol)

    def misfit(logs: np.ndarray) -> float:
        # Six digits are enough for a fit.
        loss = scale * np.asarray(solve(np.exp(logs), 1e-6).losses)
        return float(np.mean((loss - relu_loss) ** 2)) / relu_loss[0] ** 2

    factors = np.ones(2) if isinstance(o.pathway_scales, str) else np.array(o.pathway_scales)
    if o.pathway_scales == "fit":
        few = {"xatol": 5e-3, "maxfev": 80}
        best = minimize(misfit, [0.0, 0.5], method="Nelder-Mead", options=few)
        if not np.isfinite(best.fun):
            raise OptionError("pathway_scales=fit gave no finite fit; give two numbers")
        factors = np.exp(best.x)
    equal, net = solve(np.ones(2)), reduction.embed(b0)
    flow = gdln.gradient_flow(net, task.data, t, tau=1 / scale)
    w, small = flow.models.weights, jax.vmap(reduction.embed)(equal.b).weights
    maps = {h: w[second] @ w[first] for h, (_, first, second) in ways.items()}
    aligned = [np.einsum("ym,tyx,xm->tm", u, maps[h], v) for h, (u, v) in frames_of(task).items()]
    gap = np.abs(flow.losses - equal.losses).max() / equal.losses[0]
    apart = max(float(np.abs(w[e] - small[e]).max()) for e in w)
    return {
        "factors": ("kind", factors, "factors of common and contextual initial weights"),
        "loss_reduction": ("time", scale * equal.losses, "loss, coupled reduction, equal scales"),
        "loss_reduction_scaled": ("time", scale * solve(factors).losses, "with pathway_scales"),
        "strength_aligned": (_READ[1:], np.stack(aligned, axis=1), "strength, aligned, flow"),
        "flow_loss": ((), gap, "coupled reduction - flow of the network, loss / L(0)"),
        "flow_weights": ((), apart, "the same, all weights"),
        "untied": ((), reduction.untied_residual, "share of the gradient off the frames"),
    }


def representations(runs: dict[str, gdln.Trajectory], *at: np.ndarray) -> Variables:
    """Outputs and hidden representations of the first seed, at plateaus and moments."""
    found, products = Variables(), []
    for name in ("relu", "scaled"):
        output, hidden = (np.asarray(runs[name].measured[k])[0] for k in ("output", "hidden"))
        place, rows = gdln.measures.mds(hidden[at[1]]), ("moment", "example", "dimension")
        found[f"mds_{name}"] = (rows, place, f"MDS of hidden, {name}")
        found[f"output_{name}"] = (("plateau", *_EXAMPLE), output[at[0]], f"output, {name}")
        pairs = np.triu_indices(hidden.shape[1])
        products.append([(h @ h.T)[pairs] for h in hidden.astype(float)])
    alike = [np.corrcoef(*pair)[0, 1] for pair in zip(*products, strict=True)]
    return found | {"likeness": ("time", alike, "correlation of dot products of hidden units")}


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data.variables}
    curves = {kind: np.median(v[f"loss_{kind}"], axis=0) for kind in ("relu", *GATINGS, "scaled")}
    numbers = cx.distances("reduced", curves["double"], v["loss_reduction"])
    for kind, curve in curves.items():
        numbers |= cx.distances(kind, curve, curves["relu"])
    meta, step, power = cx.different("none", 1).meta, v["step"], np.median(v["power"], axis=0)
    n, early = meta["loss_scale"], power[(step >= 300) & (step <= 500), 0]
    singular = n * meta["singular_values"][:4] / REFERENCE_SINGULAR
    apart = np.linalg.norm(v["output_relu"] - v["output_scaled"], axis=(1, 2))
    return numbers | {
        **reference(o, v, float(o.loss_scale or n)),
        **{name: abs(n * meta[name] - value) for name, value in REFERENCE_LOSSES.items()},
        **{name: float(v[name]) for name in ("untied", "flow_loss", "flow_weights")},
        **dict(zip(cx.GROUPS, power[-1].tolist(), strict=True)),
        **dict(zip(("common", "contextual"), v["factors"].tolist(), strict=True)),
        "singular": float(np.abs(singular - 1).max()),
        "commutator": meta["commutator"],
        "fitted": o.pathway_scales == "fit",
        "early": float(early.min()) if len(early) else float("nan"),
        "better": numbers["double"] / numbers["single"],
        "alike": float(v["likeness"][step >= 500].min()),
        "alike_end": float(v["likeness"][-1]),
        "apart": apart / np.linalg.norm(v["output_relu"], axis=(1, 2)),
    }


def reference(o: Options, v: dict[str, np.ndarray], scale: float) -> Numbers:
    """Distance of the mean ReLU losses from those of the reference, where the options are."""
    known = (o.relu_width, o.std, o.learning_rate, scale) == (700, 7.142857e-6, 1e-3, 24.0)
    if not known or not set(REFERENCE_STEPS) <= {*v["step"]}:
        return {"scale": scale, "of_the_paper": False, "relu_mean": np.nan, "means": ""}
    found = v["loss_relu"][:, np.isin(v["step"], REFERENCE_STEPS)]
    # Standard errors of the difference of two means, by the larger of both spreads.
    spread = np.maximum(found.std(axis=0, ddof=int(o.seeds > 1)), REFERENCE_SD)
    errors = (found.mean(axis=0) - REFERENCE_MEAN) / (spread * np.sqrt(1 / o.seeds + 1 / 5))
    means, worst = ", ".join(f"{m:.3g}" for m in found.mean(axis=0)), np.abs(errors).max()
    return {"scale": scale, "of_the_paper": True, "relu_mean": float(worst), "means": means}
