"""H Fig. 7: the runs, and the numbers that checks, text and figure use."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

import gdln_jax as gdln
from gdln_jax import GatedData, GatedNetwork, exact, init, measures, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.linear import Options

# Of tests/reference.json, `linear_hierarchy` and `unbalanced_mode`: pi(0) = 1e-3.
REFERENCE_PI_10 = (2.633228626694474, 1.332284456933895, 0.12934587504526662, 0.12934587504526662)
REFERENCE_L_5 = 1.1205675291198238
REFERENCE_HALF_TIMES = (5.956971303111132, 8.610005981039492, 13.813509557297111)
REFERENCE_UNBALANCED = 2.793308870055863
PI0 = 1e-3
UNBALANCED = {"x->h1": 1e-3, "h1->y": 0.5}  # weights of the unbalanced start
FREQUENCIES = np.array([0.4, 0.3, 0.2, 0.1])  # of the items, without common frames
THINNED = 10  # the matrix solution, which costs more than the others, at every tenth time
FEATURES = ["grow", "move", "roots", "own 1", "own 2", "own 3", "own 4"]

Task = tuple[gdln.Graph, GatedData]
Modes = tuple[np.ndarray, ...]
_DIMS = "flow_time", "mode"
_MAP = "flow_time", "feature", "item"


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Random networks by descent; aligned, unbalanced, unaligned and uneven ones by flow."""
    task = tasks.hierarchy(values=1, width=o.width)
    assert isinstance(task.data, GatedData)
    x, y = (np.asarray(a) for a in (task.data.inputs["x"], task.data.targets["y"]))
    s, d, u, v = modes = modes_of(x, y, o.loss_scale)
    progress(0.1, f"{o.seeds} networks, {o.steps} steps of gradient descent")
    records = np.append(np.arange(0, o.steps, sim.spacing(o.steps, 500)), o.steps)
    grid = np.linspace(0, o.learning_rate * o.steps, 201)
    coords = {"time": ("time", o.learning_rate * records, {"units": "tau"}), "feature": FEATURES}
    coords |= {"flow_time": ("flow_time", grid, {"units": "tau"}), "seed": np.arange(o.seeds)}
    coords |= {"mode": np.arange(1, len(s) + 1), "item": np.arange(1, 5)}
    variables: Variables = {
        "y": (("feature", "item"), y.T, "features of the items"),
        "u": (("feature", "mode"), u, "output frame U"),
        "v": (("item", "mode"), v, "input frame V"),
        "s": ("mode", s, "strength of the mode in Sigma^yx, times loss_scale"),
        "d": ("mode", d, "variance of the mode in Sigma^x, times loss_scale"),
    }
    variables |= random_networks(o, (task.graph, task.data), modes, o.learning_rate * records)
    progress(0.6, "gradient flow")
    variables |= flows(o, (task.graph, task.data), modes, grid)
    return labelled("A linear network learns a hierarchy, H Fig. 7", coords, variables)


def modes_of(x: np.ndarray, y: np.ndarray, scale: float) -> tuple[np.ndarray, ...]:
    """s, d, U and V of L; modes 3 and 4 are tied, and H's choice of them is taken."""
    v = np.array([[1, 1, 2, 0], [1, 1, -2, 0], [1, -1, 0, 2], [1, -1, 0, -2]]) / 2
    v = v / np.linalg.norm(v, axis=0)
    mapped = y.T @ x @ v / len(x)
    s, d = np.linalg.norm(mapped, axis=0), np.sum((x @ v) ** 2, axis=0) / len(x)
    return scale * s, scale * d, mapped / s, v


def mode_loss(s: np.ndarray, d: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Loss at strengths (..., mode): L = 1/2 sum (s - d a)^2/d; every mode can be learned."""
    return np.asarray(0.5 * np.sum((s - d * a) ** 2 / d, axis=-1))


def random_networks(o: Options, task: Task, modes: Modes, ts: np.ndarray) -> Variables:
    """Gradient descent, the same by small networks, and H Eq. 7 from the effective a(0)."""
    (graph, data), (s, d, u, v) = task, modes
    normal, keys = init.normal(o.std), sim.keys(o.seed, o.seeds)
    nets = jax.vmap(lambda key: GatedNetwork.init(graph, normal, key=key))(keys)
    first = nets.weights["x->h1"] @ v
    second = jnp.einsum("nyh,ym->nhm", nets.weights["h1->y"], u)
    start = np.asarray(jnp.sum((first + second) ** 2, axis=1)) / 4
    rate, spacing = o.learning_rate * o.loss_scale, sim.spacing(o.steps, 500)

    def losses(nets: GatedNetwork, data: gdln.PackedData) -> np.ndarray:
        return o.loss_scale * np.asarray(sim.descend(nets, data, rate, o.steps, spacing).losses)

    small = gdln.reduce_width(nets, data)
    wide = losses(nets, gdln.pack(graph, data))
    narrow = losses(small.net, gdln.pack(small.net.graph, small.data))
    theory = mode_loss(s, d, np.asarray(exact.linear_mode(ts[:, None], s, d, start[:, None, :])))
    runs, rows = ("seed", "time"), ("seed", "mode")
    return {
        "a0": (rows, start, "effective a(0) = |W2^T u + W1 v|^2/4"),
        "product": (rows, jnp.sum(first * second, axis=1), "u^T W2 W1 v at t = 0"),
        "loss_random": (runs, wide, "loss, random networks, gradient descent"),
        "loss_small": (runs, narrow, "the same by exact small networks"),
        "small_width": ((), small.net.graph.nodes["h1"], "hidden units of these"),
        "loss_random_theory": (runs, theory, "H Eq. 7 from a0"),
    }


def flows(o: Options, task: Task, modes: Modes, grid: np.ndarray) -> Variables:
    """Aligned, unbalanced and unaligned starts, and uneven items, with their closed forms."""
    (graph, data), (s, d, u, v) = task, modes
    reduction = gdln.reduce(graph, data)

    def look(net: GatedNetwork) -> dict[str, Array]:
        w = net.weights["h1->y"] @ net.weights["x->h1"]
        off = measures.frame_distance(w, u, v)
        return {"strength": measures.mode_strengths(w, u, v), "off": off, "map": w}

    def flow(net: GatedNetwork, data: gdln.GatedData) -> gdln.Trajectory:
        # The flow of loss_scale L is that of L with tau divided by it.
        packed, tau = gdln.pack(graph, data), 1 / o.loss_scale
        return gdln.gradient_flow(net, packed, grid, tau=tau, measure=look, keep_models=False)

    aligned = flow(reduction.embed(np.sqrt(PI0)), data)
    unbalanced = flow(reduction.embed(UNBALANCED), data)
    net = GatedNetwork.init(graph, init.balanced(scale=0.1), key=jax.random.key(o.seed))
    unaligned = flow(net, data).measured["map"][::THINNED]
    weights = net.weights["x->h1"], net.weights["h1->y"]
    riccati = exact.two_layer_flow(grid[::THINNED], *weights, u * s @ v.T, sigma_x=d[0])
    thin = ("thin_time", *_MAP[1:])
    found: Variables = {
        "loss_aligned": ("flow_time", o.loss_scale * np.asarray(aligned.losses), "loss, flow"),
        "map_unaligned": (thin, unaligned, "map from a balanced, unaligned start, flow"),
        "map_unaligned_theory": (thin, riccati, "matrix Riccati solution"),
    }
    for name, run, theory in (
        ("aligned", aligned, exact.linear_mode(grid[:, None], s, d, PI0)),
        (
            "unbalanced",
            unbalanced,
            exact.unbalanced_mode(grid[:, None], s, d, *UNBALANCED.values()),
        ),
    ):
        found[f"mode_{name}"] = (_DIMS, run.measured["strength"], f"{name} start, flow")
        found[f"off_{name}"] = ("flow_time", run.measured["off"], "outside of the frames")
        found[f"mode_{name}_theory"] = (_DIMS, theory, "closed form")
    # Items at different frequencies: Sigma^x = diag(p) has no frame in common with Sigma^yx.
    uneven = GatedData(data.inputs, data.targets, weights=FREQUENCIES)
    coupled = gdln.reduce(graph, uneven, on_inexact="coupled")
    run = flow(coupled.embed(np.sqrt(PI0)), uneven)
    reduced = coupled.solve(np.sqrt(PI0), grid, tau=1 / o.loss_scale)
    inner = np.asarray(reduced.b["h1->y"]) @ np.asarray(reduced.b["x->h1"])
    ends = coupled.frames["h1->y"][0], coupled.frames["x->h1"][1]
    losses = o.loss_scale * np.stack([run.losses, reduced.losses])
    return found | {
        "loss_uneven": ("flow_time", losses[0], "loss, items at different frequencies, flow"),
        "loss_uneven_coupled": ("flow_time", losses[1], "the same by the coupled reduction"),
        "map_uneven": (_MAP, run.measured["map"], "map, uneven items, flow"),
        "map_uneven_coupled": (_MAP, np.einsum("ym,tmn,xn->tyx", ends[0], inner, ends[1]), "same"),
        "residual": ((), coupled.untied_residual, "share of the gradient outside of the frames"),
        **h_gradient(graph, uneven),
    }


def h_gradient(graph: gdln.Graph, data: GatedData) -> Variables:
    """Errors of H's updates, corrected (E20) and printed, at W2 = U Wb2 R^T, W1 = R Wb1 V^T."""
    x, y = np.asarray(data.inputs["x"]), np.asarray(data.targets["y"])
    sigma_x, sigma_yx = x.T * FREQUENCIES @ x, y.T * FREQUENCIES @ x
    both = sigma_x @ sigma_yx.T @ sigma_yx
    u, s, vh = np.linalg.svd(sigma_yx, full_matrices=False)
    d, v = np.linalg.eigh(sigma_x)
    rng = np.random.default_rng(0)
    wb1, wb2 = rng.normal(size=(2, len(s), len(s)))
    r = np.linalg.qr(rng.normal(size=(graph.nodes["h1"], len(s))))[0]
    net = GatedNetwork(graph, {"x->h1": r @ wb1 @ v.T, "h1->y": u @ wb2 @ r.T})
    slope = jax.grad(gdln.mse)(net, gdln.pack(graph, data)).weights
    found = -np.stack([r.T @ slope["x->h1"] @ v, u.T @ slope["h1->y"] @ r])
    error = np.diag(s) @ (vh @ v) - wb2 @ wb1 @ np.diag(d)
    right, printed = np.stack([wb2.T @ error, error @ wb1.T]), np.stack([wb2 @ error, wb1 @ error])
    norm, size = np.linalg.norm, np.linalg.norm(found)
    return {
        "commutator": ((), norm(both - both.T) / norm(both), "of Sigma^x and Sigma^yx^T Sigma^yx"),
        "gradient": ((), norm(found - right) / size, "error of E20's gradient"),
        "printed": ((), norm(found - printed) / size, "error of the gradient as printed"),
    }


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote."""
    v = {str(name): data[name].values for name in data}
    s, d = np.array([7**0.5, 3**0.5, 1, 1]) / 4, np.full(4, 0.25)
    at = np.asarray(exact.linear_mode(np.array([[5.0], [10.0]]), s, d, PI0))
    half = np.asarray(exact.linear_mode_time(s[:3] / d[:3] / 2, s[:3], d[:3], PI0))
    late = exact.unbalanced_mode_time(s[0] / d[0] / 2, s[0], d[0], *UNBALANCED.values())
    initial = v["loss_random_theory"][0, 0]
    pairs = zip(v["loss_random"], v["loss_random_theory"], strict=True)
    gaps = [sim.gaps(one, other, initial) for one, other in pairs]
    errors = {
        "aligned": [v["mode_aligned"] - v["mode_aligned_theory"], v["off_aligned"]],
        "unbalanced": [v["mode_unbalanced"] - v["mode_unbalanced_theory"], v["off_unbalanced"]],
        "loss": [v["loss_aligned"] - mode_loss(v["s"], v["d"], v["mode_aligned_theory"])],
        "unaligned": [v["map_unaligned"] - v["map_unaligned_theory"]],
        "uneven": [v["map_uneven"] - v["map_uneven_coupled"]],
        "modes": [at[1] / REFERENCE_PI_10 - 1],
        "loss_5": [mode_loss(s, d, at[0]) - REFERENCE_L_5],
        "half": [half / REFERENCE_HALF_TIMES - 1],
        "half_unbalanced": [late - REFERENCE_UNBALANCED],
        "small": [(v["loss_small"] - v["loss_random"]) / v["loss_random"][0, 0]],
    }
    numbers = {name: max(float(np.abs(e).max()) for e in each) for name, each in errors.items()}
    for name in ("residual", "commutator", "gradient", "printed", "small_width"):
        numbers[name] = v[name].item()
    numbers["mean"], numbers["most"] = np.median(gaps, axis=0)
    numbers["a0"], numbers["a0_sd"] = v["a0"].mean(), v["a0"].std()
    return numbers | {"expected": o.width * o.std**2 / 2, "negative": np.mean(v["product"] < 0)}
