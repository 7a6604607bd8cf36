"""H Fig. 5: the runs, and the numbers that checks, text and figure use."""

import numpy as np
import xarray as xr

from gdln_jax import exact, expected_initial, gradient_flow, reduce, relu, tasks
from gdln_jax.recipes._core import context_runs as cx
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.more_contexts import Options

# Independent values (tests/reference.json, `contexts`): sums, tau = 1.
REFERENCE_START = (2.0159755e-5, 1.6510201e-5, 1.2743653e-5)  # C = 3, modes 1, 2, 4
REFERENCE_MODES = (2.1457719028676765, 0.5187946637909578, 0.006810318079955083)
INITIAL, ADDITIVE = 32.0, 8.5  # losses: times C, and C - 1
CODE_SIZES = {3: 1.0, 4: 1.1, 5: 1.35}  # of the one-hot contexts in the public code (E26)
# Number of contexts in which the units with most power are on, by number and size of contexts.
MAJORITY = {(3, 1.0): 2, (4, 1.0): 3, (5, 1.0): 3, (4, 1.1): 3, (5, 1.35): 4}
# E26, 600 units, 3 seeds: shares of the power of units that are on in 3 and in 4 of 5 contexts.
REFERENCE_POWER = {1.0: (0.58, 0.35), 1.35: (0.34, 0.61)}


def members(o: Options) -> list[tuple[int, float, str]]:
    """Number of contexts, their size in the inputs, and the end of the names of variables."""
    sizes = [(c, size) for c in o.contexts for size in dict.fromkeys((1.0, CODE_SIZES.get(c, 1.0)))]
    return [(c, size, f"{c}" if size == 1 else f"{c}_code") for c, size in sizes]


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """All numbers of contexts, with inputs as printed and then, where they differ, of the code."""
    variables, coords, every = Variables(), {"contexts": list(o.contexts)}, members(o)
    # Of inputs as printed and of the code, which are the same for some numbers of contexts.
    power = np.full((2, len(o.contexts), o.seeds, max(o.contexts) + 1), np.nan)
    for k, (c, size, tag) in enumerate(every):
        progress(0.95 * k / len(every), f"C = {c}, contexts of size {size:g}")
        found, shares, descent = member(o, c, size)
        power[int(size != 1) :, o.contexts.index(c), :, : c + 1] = shares
        variables |= {f"{name}_{tag}": variable for name, variable in found.items()}
        coords |= descent.coords()
    dims, about = ("contexts", "seed", "active"), "power of ReLU units by contexts they are on in"
    variables["power"] = dims, power[0], about
    variables["power_code"] = dims, power[1], f"{about}, inputs of the public code"
    sizes = list({c: size for c, size, _ in every}.values())
    variables["context_size"] = "contexts", sizes, "size of the contexts in the public code"
    return labelled("More contexts, H Fig. 5", coords, variables)


def member(o: Options, c: int, size: float) -> tuple[Variables, np.ndarray, cx.Descent]:
    """Networks, the residual, closed forms; power of ReLU units at the end; the descent."""
    plain = tasks.semantic_contexts(c, pathways="none", width=1, context_scale=size)
    task = tasks.semantic_contexts(c, width=o.width, context_scale=size)
    scale, (frames, u) = o.loss_scale or float(plain.meta["loss_scale"]), frames_of(task)
    descent = cx.Descent(o.seed, o.seeds, o.std, scale, o.learning_rate, o.steps, 150)
    runs = {"relu": descent.relu(plain, o.relu_width), "gated": descent.gated(task, frames)}
    k, t = list(task.graph.hidden).index("common"), o.learning_rate * descent.step
    found = descent.losses(runs) | closed_forms(task, o, scale, t)
    start, final = (np.asarray(found[name][1]) for name in ("start", "final"))
    strength = np.asarray(runs["gated"].measured["strength"])
    common, rest = strength[:, :, k, : len(final)], np.delete(strength, k, 2)[..., : len(start)]
    groups = np.asarray(runs["relu"].measured["groups"])[:, -1]
    whole = strength[..., -len(final) :].sum(axis=2)
    dims, others = ("seed", "time", f"mode_{c}"), ("seed", "time", f"pathway_{c}", f"rest_{c}")
    found |= {
        "common": (dims, common, "common pathway, gated networks"),
        "whole": (dims, whole, "output along the common modes, gated networks"),
        "contextual": (others, rest, "contextual pathways, gated networks"),
        "strict": ("seed", groups[:, 1], "power of strictly consistent ReLU units"),
    }
    if size == 1:  # the residual does not depend on the size (E26)
        pairs = np.einsum("pym,qyn->pqmn", u, u)[np.triu_indices(len(u), 1)]
        found["overlap"] = (), np.abs(pairs + np.eye(len(start)) / (c - 1)).max(), "error of E16"
        found["residual"] = (), residual_error(c, scale, float(start[0]), t), "error of E17"
    return found, groups[:, 2:], descent


def svd(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, S, V of the modes that are not rounding."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    kept = s > 1e-9 * s[0]
    return u[:, kept], s[kept], vt[kept].T


def frames_of(task: tasks.Task) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Frames in which pathways are read, and the U of the contextual ones, (pathway, y, mode).

    First the own modes of a pathway, padded to one number, then the common modes: (u_k, q) with
    q = <x_p x^T> v_k/d_k, so that summed over pathways the strengths are those of the output.
    """
    x, context, maps = task.meta["x"], task.meta["context"], cx.pathway_maps(task)
    u, _, wide = svd(maps.pop("common"))
    v = svd(next(iter(maps.values())))[2]
    own = {name: (m @ v / np.linalg.norm(m @ v, axis=0), v) for name, m in maps.items()}
    d, count, frames = np.sum((x @ wide) ** 2, axis=0), max(wide.shape[1], v.shape[1]), {}
    for name, (left, right) in {"common": (u, wide), **own}.items():
        seen = x * np.isin(context, task.meta["active"][name])[:, None]
        q = seen[:, : len(right)].T @ x @ wide / d
        pad = ((0, 0), (0, count - right.shape[1]))
        frames[name] = np.hstack([np.pad(left, pad), u]), np.hstack([np.pad(right, pad), q])
    return frames, np.stack([left for left, _ in own.values()])


def closed_forms(task: tasks.Task, o: Options, scale: float, t: np.ndarray) -> Variables:
    """Closed forms from the task's arrays alone; `scale` is loss_scale, n C for sums."""
    x, y, context = (task.meta[key] for key in ("x", "y", "context"))
    c, n = int(context.max()) + 1, task.graph.nodes["items"]
    share = scale / len(x)  # sums times this are the statistics of loss_scale times the mean
    u, s, v = svd(y.T @ x)
    d = np.sum((x @ v) ** 2, axis=0)  # of a common mode's own v (E27)
    a0 = np.full(len(s), expected_initial(o.width, o.std)[0])
    common = np.asarray(exact.linear_mode(t[:, None], share * s, share * d, a0))
    on = next(active for name, active in task.meta["active"].items() if name != "common")
    items = x[:, :n] * np.isin(context, on)[:, None]
    taken = np.einsum("k,yk,xk,xz->kyz", s / d, u, v, x.T @ items)
    # Contextual modes start where the growth on the target of the common pathway leaves them.
    head = relu.head_start(share * (y.T @ items), share * taken, share * s, share * d, a0)
    start, strengths = np.asarray(head.expected(o.width, o.std)), np.asarray(head.s)
    rest = np.asarray(exact.context_mode(t[:, None], strengths, share * (c - 1), start, c))
    # H App. G (theory#contexts): (C-1)/2 sum sigma^2 (1 - B/B_inf)^2, S = sqrt((C-1)/C) sigma.
    left = np.sum(c * strengths**2 / share * (1 - rest * share / strengths) ** 2, axis=-1)
    loss = 0.5 * (np.sum(share * s**2 / d * (1 - common * d / s) ** 2, axis=-1) + left)
    return {
        "loss_theory": ("time", loss, "loss, closed form"),
        "common_theory": (("time", f"mode_{c}"), common, "common pathway, H Eq. 7"),
        "contextual_theory": (("time", f"rest_{c}"), rest, "contextual pathways, closed form"),
        "start": (f"rest_{c}", start, "B(0), referred back to t = 0"),
        "final": (f"mode_{c}", s / d, "limits of the common modes"),
    }


def residual_error(c: int, scale: float, b0: float, t: np.ndarray) -> float:
    """Largest error of E17 against the flow of aligned contextual pathways on the residual."""
    task = tasks.semantic_contexts(c, residual=True, width=8)
    reduction, ts = reduce(task.graph, task.data), t[:: max(1, len(t) // 80)]
    flow = gradient_flow(reduction.embed(np.sqrt(b0)), task.data, ts, tau=1 / scale)
    b, worst, d = reduction.read(flow.models)[0], 0.0, scale * (c - 1) / len(task.meta["x"])
    for _, first, second in cx.pathways(task.graph).values():
        s = scale * np.asarray(reduction.strengths[first, second])
        modes = np.asarray(exact.context_mode(ts[:, None], s, d, b0, c))
        worst = max(worst, float(np.abs(np.asarray(b[first] * b[second]) - modes).max()))
    return worst


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v, every = {str(name): data[name].values for name in data.variables}, members(o)
    rows = [examined(o, v, *one) for one in every]
    modes = exact.context_mode(4.0, np.sqrt(np.array([14, 6, 2]) / 3), 2.0, 1e-5, 3)
    ids = ("initial", "additive", "whole", "gated", "relu", "majority", "e26")
    numbers = {k: float(np.max([row[k] for row in rows])) for k in (*ids, "lost", "gain", "strict")}
    numbers |= {k: "; ".join(row[k] for row in rows) for k in ("starts", "counts")}
    numbers |= {k: np.max([v[f"{k}_{c}"] for c in o.contexts]) for k in ("residual", "overlap")}
    known = 3 in o.contexts and (o.width, o.std, o.loss_scale) == (100, 7.142857e-6, None)
    start = v["start_3"][[0, 1, 3]] / REFERENCE_START if known else np.full(3, np.nan)
    usual = ("relu_width", "std", "learning_rate", "steps", "loss_scale")
    printed = ", ".join(row["most_of"] for row in rows if row["size"] == 1)
    code = [row["most_of"] for row in rows if CODE_SIZES.get(row["contexts"]) == row["size"]]
    of_code = f", and in {', '.join(code)} with those of the public code"
    few = [row["title"] for row in rows if row["widest"] < row["contexts"] - 1]
    return numbers | {
        "modes": float(np.abs(np.asarray(modes) / REFERENCE_MODES - 1).max()),
        "start": float(np.abs(start - 1).max()),
        "of_the_paper": known,
        "known": any((c, size) in MAJORITY for c, size, _ in every),
        "five": 5 in o.contexts and all(getattr(o, k) == getattr(Options, k) for k in usual),
        "members": rows,
        "printed": printed,
        "of_code": of_code if code else "",
        "beyond": ", ".join(few),
    }


def examined(o: Options, v: dict[str, np.ndarray], c: int, size: float, tag: str) -> Numbers:
    """The numbers of one number of contexts and one size of them."""
    meta = tasks.semantic_contexts(c, pathways="none", width=1, context_scale=size).meta
    n, final, start = meta["loss_scale"], v[f"final_{tag}"], v[f"start_{tag}"]
    shares = v["power" if size == 1 else "power_code"][o.contexts.index(c), :, : c + 1]
    power = np.median(shares, axis=0)
    off = np.abs(v[f"whole_{tag}"].mean(axis=0) - v[f"common_theory_{tag}"]) / final
    title, most = f"C = {c}" + ("" if size == 1 else f", c = {size:g}"), int(power.argmax())
    counts = ", ".join(f"{k}: {share:.0%}" for k, share in enumerate(power) if k)
    starts = ", ".join(f"{b:.4g}" for b in dict.fromkeys(np.round(start, 12)))
    numbers: Numbers = {"title": title, "tag": tag, "contexts": c, "size": size, "power": power}
    numbers |= {"widest": most, "most_of": f"{most} of {c}", "starts": f"{starts} ({title})"}
    for kind in ("relu", "gated"):
        loss = np.median(v[f"loss_{kind}_{tag}"], axis=0)
        numbers |= cx.distances(kind, loss, v[f"loss_theory_{tag}"])
    return numbers | {
        "counts": f"{title}, {counts}",
        "initial": abs(n * meta["initial_loss"] - INITIAL * c),
        "additive": abs(n * meta["additive_loss"] - ADDITIVE * (c - 1)),
        "whole": off.mean(axis=0).max(),
        "majority": abs(most - MAJORITY.get((c, size), most)),
        "e26": np.abs(power[3:5] - REFERENCE_POWER[size]).max() if c == 5 else 0.0,
        "lost": (1 - v[f"common_{tag}"].mean(axis=0)[-1] / final).max(),
        "gain": start.max() / (o.width * o.std**2 / 2),
        "strict": np.median(v[f"strict_{tag}"]),
    }
