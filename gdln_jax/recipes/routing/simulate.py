"""N Fig. 4: the runs, and the numbers that checks, text and figure use."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, PyTree

import gdln_jax as gdln
from gdln_jax import GatedNetwork, init, measures, rules, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.routing import Options
from gdln_jax.recipes.routing.setting import Modes, Plan, make_plan, schedule

# Of tests/reference.json, `routing_M7_B0_0.2`: M = 7, B1(0) = B2(0) = 0.2, the hierarchy. Loss at
# TIMES, loss of gradient descent after STEPS of 0.02, final B2/B1 of mode 1.
TIMES, STEPS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0), (0, 50, 100, 250, 500, 1000)
LOSSES = 30.4480228105, 30.4038247427, 30.297084131, 7.37306670537, 2.52130789361, 0.420468915711
DESCENT = 30.448022811, 30.404066475, 30.298785419, 7.4171600585, 2.5552495052, 0.42967597095
RATIO = 2.63053924
GAP = 0.7  # zero-shot generalisation is expected below this sigma_2/sigma_1 (E11, E12)
ROWS, OWN, SEEDS = ("flow_time", "edge", "mode"), ("time", "edge", "mode"), ("seed", "time", "mode")


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Random networks and the decoupled one by descent; its flow, its reduction and Eq. 15."""
    p = make_plan(o)
    modes, initial, keys = p.modes, getattr(init, o.init)(p.scale), sim.keys(o.seed, o.seeds)
    nets = jax.vmap(lambda key: GatedNetwork.init(p.task.graph, initial, key=key))(keys)
    start = jax.vmap(lambda net: shared(net, p))(nets)
    b1, hidden = np.sqrt(np.asarray(start.first * start.third)), np.asarray(start.hidden)
    middle, own = np.median(b1, axis=0), np.median(hidden, axis=0)
    steps, spacing = schedule(o, p, middle, own)
    progress(0.1, f"{o.seeds + 1} networks, {steps} steps of gradient descent")
    nets = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), nets, p.reduction.embed(p.b0))
    variables = descended(o, p, nets, steps, spacing)
    at = np.arange(0, steps + 1, spacing)
    t, thin = np.asarray(gdln.flow_time(at, p.rate)), max(1, len(at) // 100)
    grid = np.unique([*t[::thin], t[-1], *(x for x in TIMES if x <= t[-1])])
    progress(0.6, "gradient flow, reduction and theory")
    variables |= flows(o, p, grid, at)
    random = np.asarray(variables["loss_random"][1])[:, ::thin]
    fitted, misfit = fit(modes, t[::thin], random, float(np.median(middle)))
    best, theory = np.median(fitted), modes.flow(t, p.b0, p.b0)
    starts = {"projected": (middle, middle), "separate": (middle, own), "fitted": (best, best)}
    for name, values in starts.items():
        note = f"N Eq. 15 from the {name} initial values of the random networks"
        variables[f"loss_theory_{name}"] = ("time", modes.loss(*modes.flow(t, *values)), note)
    variables |= {
        "s": ("mode", modes.s, "strength of the mode in the base data's Sigma^yx"),
        "d": ("mode", modes.d, "variance of the mode in the base data's Sigma^x"),
        "half_trace": ((), modes.half_trace, "1/2 <|y|^2>"),
        "b0": ((), p.b0, "b(0) of the decoupled network"),
        "scale": ((), p.scale, "scale of the random initial weights"),
        "rate": ((), p.rate, "step of gradient descent"),
        "pattern": (("input", "output"), p.task.meta["pattern"], "1: route is trained"),
        "loss_theory": ("time", modes.loss(*theory), "loss, N Eq. 15 from b(0)"),
        "b1_theory": (OWN[::2], theory[0], "B1 = B3, first and third layer, theory"),
        "b2_theory": (OWN[::2], theory[1], "B2, hidden layer, theory"),
        "b1_projected": (SEEDS[::2], b1, "B1(0) by projection of the initial weights (E9)"),
        "b2_projected": (SEEDS[::2], hidden, "B2(0) by projection"),
        "b0_fitted": ("seed", fitted, "B1(0) = B2(0) whose Eq. 15 fits the loss best"),
        "b0_misfit": ("seed", misfit, "rms misfit of that fit, fraction of 1/2 <|y|^2>"),
    }
    coords = {"time": ("time", t, {"units": "tau"}), "flow_time": grid, "step": ("time", at)}
    coords |= {"seed": np.arange(o.seeds), "mode": np.arange(1, len(modes.s) + 1)}
    coords |= {"input": np.arange(o.domains), "output": np.arange(o.domains)}
    coords |= {"edge": [edge.name for edge in p.task.graph.edges]}
    return labelled("Routing, N Fig. 4", coords, variables).assign_attrs(base=p.origin)


def shared(net: GatedNetwork, p: Plan) -> measures.SharedStrengths:
    """Return the strengths of the modes along the code that all domains share."""
    first, hidden, third = net.stacks
    return measures.shared_strengths(first, hidden[0], third, p.u, p.v)


def by_edge(p: Plan, values: PyTree, axis: int) -> np.ndarray:
    """Return values of edges in the order of the graph: first, hidden and third layer."""
    return np.stack([values[edge.name] for edge in p.task.graph.edges], axis)


def descended(o: Options, p: Plan, nets: PyTree, steps: int, spacing: int) -> Variables:
    """Train random networks and, last, the decoupled one."""
    x, _ = p.task.meta["base"]

    def look(net: GatedNetwork) -> tuple[PyTree, ...]:
        errors = measures.zero_shot_error(net, x, p.predict(x), p.task.meta["pattern"])
        squares = jnp.stack([jnp.sum(jnp.square(w)) for w in net.stacks])
        return shared(net, p), p.reduction.read(net), errors, squares

    data = gdln.pack(p.task.graph, p.task.data)
    run = sim.descend(nets, data, p.rate, steps, spacing, measure=look)
    along, (b, outside), errors, squares = run.measured
    strengths, outside = by_edge(p, b, -2)[-1][..., p.order], by_edge(p, outside, -1)[-1]
    growth, losses = np.asarray(squares[:-1, -1] - squares[:-1, 0]), np.asarray(run.losses)
    variables = final_state(o, p, jax.tree.map(lambda a: a[:-1], run.final)) | {
        "loss_random": (SEEDS[:2], losses[:-1], "loss, random networks, descent"),
        "loss_decoupled": ("time", losses[-1], "loss, decoupled network, descent"),
        "strengths_descent": (OWN, strengths, "decoupled network, descent"),
        "outside_descent": (OWN[:2], outside, "share of its weights outside of the frames"),
        "growth": ("seed", growth[:, 1] / growth[:, 0], "growth of sum W2^2 / that of sum W1^2"),
    }
    for name, error in zip(("trained", "untrained"), errors, strict=True):
        note = f"relative error against the best linear map, mean over {name} routes"
        variables[f"error_{name}"] = (SEEDS[:2], error[:-1], note)
    parts = np.split(strengths, (o.domains, o.domains + 1), axis=1)
    notes = "|mean W1 v|", "W2 along the shared code", "|mean W3^T u|"
    for k, (part, values, note) in enumerate(zip(parts, along, notes, strict=True), 1):
        variables[f"b{k}_random"] = (SEEDS, values[:-1], f"{note}, random networks")
        variables[f"b{k}_decoupled"] = (OWN[::2], part.mean(axis=1), f"B{k}, descent, mean edge")
    return variables


def final_state(o: Options, p: Plan, nets: GatedNetwork) -> Variables:
    """Errors by route; similarity and outputs for probes: items, means of classes, or modes."""
    x, y = p.task.meta["base"]
    probes, names = x, [str(k + 1) for k in range(len(x))]
    if o.base == "digits":  # least squares on one-hot labels: <x y_c> / <y_c>
        probes, names = (x.T @ y / np.sum(y**2, axis=0)).T, [str(k) for k in range(10)]
    elif len(x) > 12:
        probes = (p.v * np.sqrt(p.modes.d)).T[:10]
        names = [f"m{k + 1}" for k in range(len(probes))]

    def look(net: GatedNetwork) -> tuple[Array, ...]:
        outputs = jnp.einsum("ijyx,nx->ijny", measures.input_output_maps(net), probes)
        h = jnp.einsum("iwx,nx->inw", net.stacks[0], probes).reshape(-1, o.width)
        cosine = measures.domain_alignment(h @ h.T, o.domains)  # without a pair NaN
        return measures.route_errors(net, x, p.predict(x)), h @ h.T, cosine, outputs

    errors, similarity, cosine, outputs = jax.jit(jax.vmap(look))(nets)
    route, pair = ("seed", "input", "output"), ("seed", "presentation", "presentation2")
    return {
        "probe": ("probe", names, "item, class or mode"),
        "route_error": (route, errors, "relative error by route, at the end"),
        "similarity": (pair, similarity, "dot products at h1 at the end, of domains times probes"),
        "domain_alignment": ("seed", np.nan_to_num(cosine, nan=1.0), "mean cosine across domains"),
        "target": (("probe", "feature"), p.predict(probes), "best linear prediction"),
        "response": ((*route, "probe", "feature"), outputs, "outputs for the probes"),
    }


def flows(o: Options, p: Plan, grid: np.ndarray, at: np.ndarray) -> Variables:
    """The decoupled network by flow; its reduction and quotient, which know nothing of Eq. 15."""
    graph, net, quotient = p.task.graph, p.reduction.embed(p.b0), p.reduction.quotient(p.b0)

    def look(net: GatedNetwork) -> tuple[PyTree, Array]:
        return p.reduction.read(net), jnp.stack([measures.conserved(net, n) for n in ("h1", "h2")])

    flow = gdln.gradient_flow(net, p.task.data, grid, measure=look, keep_models=False)
    (b, outside), held = flow.measured
    size = np.linalg.norm(net.weights["h1->h2"] @ net.weights["h1->h2"].T)
    change = np.linalg.norm(held - held[:1], axis=(2, 3)).max(axis=1) / size
    solved = p.reduction.solve(p.b0, grid)
    run = quotient.train(rule=rules.sgd(p.rate), steps=int(at[-1]), save_every=int(at[1]))
    strengths, reduced, mapped = (by_edge(p, a, 1)[..., p.order] for a in (b, solved.b, run.b))
    # Layers that start apart are classes of their own, so that each shows its own rate.
    split = p.reduction.quotient({e.name: p.b0 * (1 + graph.level[e.source]) for e in graph.edges})
    rates = {e: rate for c, rate in zip(split.classes, split.rates, strict=True) for e in c}
    variables: Variables = {
        "strengths_flow": (ROWS, strengths, "decoupled network, flow"),
        "outside_flow": (ROWS[:2], by_edge(p, outside, 1), "share outside of the frames"),
        "b1_flow": (ROWS[::2], strengths[:, : o.domains].mean(axis=1), "B1, flow, mean edge"),
        "b2_flow": (ROWS[::2], strengths[:, o.domains], "B2, decoupled, flow"),
        "conserved_change": ("flow_time", change, "relative change of the matrices of E8, flow"),
        "strengths_reduced": (ROWS, reduced, "reduction"),
        "strengths_map": (OWN, mapped, "trained quotient"),
        "loss_flow": ("flow_time", flow.losses, "loss, decoupled network, flow"),
        "loss_reduced": ("flow_time", solved.losses, "loss, reduction"),
        "loss_quotient": ("flow_time", quotient.solve(grid).losses, "loss, quotient"),
        "rates": ("edge", by_edge(p, rates, 0), "rate of the class"),
        "classes": ((), len(quotient.classes), "classes of edges that start equal"),
    }
    if o.unequal and o.trained < o.domains:  # widths do not matter to reduced dynamics
        how = {"key": jax.random.key(o.seed), "width": min(len(p.u), len(p.v))}
        how |= {"base": p.task.meta["base"], "pattern": "rows_only"}
        task = tasks.routing(o.domains, o.trained, **how)
        reduction = gdln.reduce(task.graph, task.data)
        other, note = reduction.quotient(p.b0), "residual, classes, distance in L(0) (E7)"
        away = float(np.abs(other.solve(grid).losses - solved.losses).max() / solved.losses[0])
        variables["unequal"] = ("kind", [reduction.residual, len(other.classes), away], note)
    return variables


def fit(modes: Modes, t: np.ndarray, losses: np.ndarray, around: float) -> tuple[np.ndarray, ...]:
    """Return the b(0) whose loss by Eq. 15 is nearest to each run (run, time), and the misfit."""
    low, high, best, misfit = around / 4, around * 4, np.zeros(0), np.zeros(0)
    for _ in range(2):
        grid = np.geomspace(low, high, 40)
        curves = modes.loss(*modes.flow(t, grid[:, None, None], grid[:, None, None]))
        gaps = np.sqrt(np.mean((losses[:, None] - curves) ** 2, axis=-1)) / modes.half_trace
        chosen = gaps.argmin(axis=1)
        best, misfit = grid[chosen], gaps.min(axis=1)
        low, high = grid[max(chosen.min() - 1, 0)], grid[min(chosen.max() + 1, 39)]
    return best, misfit


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data}
    m, b0, b, step = o.domains, float(v["b0"]), v["strengths_map"], data["step"].values
    modes = Modes(v["s"], v["d"], float(v["half_trace"]), m)
    b1, b2 = modes.flow(data["flow_time"].values, b0, b0)
    theory, final = np.stack([*[b1] * m, b2, *[b1] * m], axis=1), modes.flow(np.inf, b0, b0)
    own, loss, end = v["loss_decoupled"], v["loss_flow"], v["strengths_flow"][-1]
    ratio = end[m] / end[:m]

    def weights(run: str, expected: np.ndarray) -> np.ndarray:
        found, outside = v[f"strengths_{run}"], v[f"outside_{run}"]
        off = np.linalg.norm(found, axis=-1) * outside
        return np.hypot(np.linalg.norm(found - expected, axis=-1), off)

    errors = {
        "flow": weights("flow", theory),
        "descent": weights("descent", b),
        "descent_loss": (own - modes.loss(b[:, 0], b[:, m])) / own[0],
        "conserved": v["conserved_change"],
        "ratio": ratio / (b2[-1] / b1[-1]) - 1,
        "final_ratio": (final[1] / final[0])[0] - RATIO,
        "eq15": modes.loss(*modes.flow(np.array(TIMES), b0, b0)) / np.array(LOSSES) - 1,
        "steps": np.interp(STEPS, step, own) / np.array(DESCENT) - 1,
        "reduced": v["strengths_reduced"] - theory,
        "reduced_loss": (v["loss_reduced"] - loss) / loss[0],
        "quotient_loss": (v["loss_quotient"] - v["loss_reduced"]) / loss[0],
        "classes_off": v["classes"] - min(2, m),
        "rates_off": v["rates"] - np.repeat([1 / m, 1.0, 1 / m], [m, 1, m]),
    }
    numbers: Numbers = {name: float(np.abs(value).max()) for name, value in errors.items()}
    numbers |= {name: float(v[name]) for name in ("b0", "scale", "classes")}
    numbers |= {"origin": data.attrs["base"], "other_data": o.base != "hierarchy"}
    numbers |= {"ratio_low": ratio.min(), "ratio_high": ratio.max(), "root": m**0.5}
    paper = (o.base, bool(o.whiten), m, b0) == ("hierarchy", False, 7, 0.2)
    at = paper and float(v["rate"]) == 0.02 and bool(np.isin(STEPS, step).all())
    numbers |= {"of_the_paper": paper, "steps_of_the_paper": at}
    numbers |= {"rest": modes.loss(*final) / modes.half_trace, "unequal_run": "unequal" in v}
    if "unequal" in v:
        numbers |= dict(zip(("residual", "more_classes", "away"), v["unequal"], strict=True))
    return numbers | random_networks(o, v)


def random_networks(o: Options, v: Mapping[str, np.ndarray]) -> Numbers:
    """Numbers of the random networks: initial values, errors on routes, and growth."""
    starts = "b1_projected", "b2_projected", "b0_fitted"
    numbers: Numbers = {name: (v[name].mean(), v[name].std()) for name in starts}
    for name in ("projected", "separate", "fitted"):
        gaps = np.abs(np.median(v["loss_random"], axis=0) - v[f"loss_theory_{name}"])
        numbers[f"misfit_{name}"] = gaps.mean() / v["half_trace"]
    untrained, gap = v["pattern"] == 0, tasks.spectral_gap(v["pattern"])
    some = bool(untrained.any())  # else the trained routes stand in their place
    trained, rest = (v["route_error"][:, k].mean(axis=1) for k in (~untrained, untrained == some))
    numbers |= {"generalises": some and gap < GAP, "too_large": some and gap >= GAP}
    numbers |= {"all_trained": not some, "gap": gap, "edges": 2 * o.domains + 1}
    numbers["median_seed"] = int(np.argsort(rest, kind="stable")[(o.seeds - 1) // 2])
    quartiles = np.quantile(rest if some else np.full(1, np.nan), (0.25, 0.5, 0.75))
    numbers |= dict(zip(("low", "untrained", "high"), quartiles, strict=True))
    ends = [f"{np.median(trained):.1e} on trained", f"{quartiles[1]:.1e} on untrained routes"]
    numbers["at_the_end"] = " and ".join(ends) if some else f"{ends[0]} routes, which are all"
    medians = {"error_trained": trained, "alignment": v["domain_alignment"], "growth": v["growth"]}
    return numbers | {name: float(np.median(values)) for name, values in medians.items()}
