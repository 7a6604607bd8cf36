"""The claims: all runs, exact laws, and the numbers that criteria, text and figure use."""

import jax
import numpy as np
import xarray as xr

from gdln_jax import race, tasks
from gdln_jax.recipes._core.declare import Numbers, Progress
from gdln_jax.recipes._core.labelled import Variables, labelled
from gdln_jax.recipes.claims import DEPTHS, ROWS, TASKS, Options, runs

# Computed independently of this package (tests/reference.json).
REFERENCE_CLOCK, REFERENCE_FROZEN = 4.37300746, (0.7928171, 0.5119832, 0.33062707)
REFERENCE_DEPTH = 0.81, 0.11235726, 0.0016745495
SPREADS = {"log-normal 0.1": 0.1, "log-normal 0.3": 0.3, "log-normal 1": 1.0, "half-normal": None}
SCALES, SIGMA = np.array([1e-1, 1e-3, 1e-12]), np.array(runs.UNEQUAL) / runs.CLASSES
EARLY, LATE = (5e-3, 5e-2), (0.99, np.inf)  # output over target: early growth; the race is over
FEW = {"presence": 0.6, "gates": "none", "width": 64}  # views of the ReLU networks
Samples = dict[tuple[str, str], np.ndarray]  # run by run, by number and place


def simulate(o: Options, progress: Progress) -> xr.Dataset:
    """Networks of all depths and losses, momentum, ReLU networks, exact laws."""
    variables, names = exact_laws(o) | portraits(), list(runs.SETUPS)
    for k, (depth, raced, end) in enumerate(((2, 60, 300), (3, 200, 600), (4, 3000, 6000))):
        progress(0.05 + 0.15 * k, f"networks of {depth} weight layers")
        # Fine while views race, coarse after; a plateau lasts about 1/(S u0^(L-2)).
        ts = np.concatenate([np.linspace(0, raced, 121), np.geomspace(raced, end, 12)[1:]])
        variables |= runs.race(o, f"L{depth}", depth, names[: None if depth == 2 else 4], ts)
    progress(0.5, "cross-entropy, momentum, ReLU networks")
    ts, few = np.append(0, np.geomspace(0.1, 1e4, 101)), tasks.multiview(3, 2, **FEW)
    variables |= runs.race(o, "entropy", 2, names[:1], ts) | runs.momentum(o)
    variables |= runs.relu_networks(o, few, 0.1, o.relu_steps)
    variables |= runs.relu_networks(o, tasks.xor(gating="none", width=64), 0.05, o.relu_steps // 5)
    coords = {"view": [1, 2, 3], "plane": ["first", "second"], "law": ["pathways", "R"]}
    coords |= {"rule": ["R: rate u0", "R, norm: rate u0^L", "rate u0^(L-2)"]}
    coords |= {"depth": list(DEPTHS), "scale": SCALES, "distribution": list(SPREADS)}
    return labelled("R's claims", coords, variables)


def exact_laws(o: Options) -> Variables:
    """A race with known values, winner maps, and rules put to the test in races of three views."""
    model, s0, ts = race.LotkaVolterra(runs.UNEQUAL), np.full(3, 0.01), np.linspace(0, 9, 181)
    phases, rng = model.phases(s0), np.random.default_rng(o.seed)
    ends = phases.exponential_end, phases.frozen_start
    rates, z = np.exp(0.2 * rng.normal(size=(o.draws, 3))), rng.normal(size=(o.draws, 3))
    unit = np.stack([np.abs(z) if s is None else np.exp(s * z) for s in SPREADS.values()])
    u0, ratios = SCALES[:, None, None, None] * unit, np.geomspace(0.5, 2, o.grid)
    maps, hits, lost = [], [], []
    for depth in DEPTHS:
        winner = np.asarray(race.frozen_shares(rates, u0, depth)).argmax(axis=-1)
        named = np.stack([(rates * u0**x).argmax(axis=-1) for x in (1, depth, depth - 2)])
        hits.append(np.mean(named == winner, axis=-1))
        lost.append(np.divide(*race.frozen_shares(np.ones(2), [0.09, 0.1], depth)))
        maps.append(race.winner_map(ratios, ratios, depth, u0=0.01))
    half = 1e-3 * np.abs(np.random.default_rng(o.seed + 1).normal(size=(o.draws, 3)))
    equal = half.argmax(axis=1) == np.argmax(race.frozen_shares(np.ones(3), half, 2), axis=1)
    grid, table = ("depth", "rate_ratio", "start_ratio"), ("rule", "depth", "scale", "distribution")
    return {
        "clock_time": ("clock_time", ts, "time of R's equation"),
        "clock": ("clock_time", model.clock(s0, ts), "clock T(t), rates 1, 0.9, 0.8, s(0) = 0.01"),
        "clock_strength": (("clock_time", "view"), model.solve(s0, ts), "s_m(t)"),
        "clock_limit": ((), model.clock_limit(s0), "T_inf"),
        "clock_frozen": ("view", model.limit(s0), "s_m(inf)"),
        "clock_phase": ("phase", ends, "ends of the exponential phase and of competition"),
        "rate_ratio": ("rate_ratio", ratios, "rate of view 2 over view 1"),
        "start_ratio": ("start_ratio", ratios, "layer strength u0, 2 over 1"),
        "map_share": (grid, [one.share for one in maps], "final share of view 2"),
        "map_accuracy_summary": ("depth", [m.summary_accuracy for m in maps], "R's rule right"),
        "accuracy": (table, np.stack(hits, axis=1), "fraction of races that a rule names rightly"),
        "accuracy_equal": ((), equal.mean(), "the same, R's rule, equal rates, L = 2"),
        "depth_race": ("depth", lost, "final loser/winner, equal rates, u0 = 0.1 and 0.09"),
    }


def portraits() -> Variables:
    """Phase portraits of views of strengths 1, 0.8, together by R's equation, or with p = 0.8."""
    angle, pair, p = np.linspace(0.06, np.pi / 2 - 0.06, 9), runs.PAIR, 0.8
    circle, arc = np.stack([np.cos(angle), np.sin(angle)], axis=1), race.frozen_arc(1.0)
    starts = np.concatenate([0.04 * circle, 1.28 * circle[1::2]])
    ts, found = np.append(0, np.geomspace(0.03, 400, 90)), {}
    apart = race.Pathways(p * pair, np.outer(pair, pair) * (p**2 + p * (1 - p) * np.eye(2)))
    lines, end = race.nullclines(apart, 1.4)[0], apart.limit()[None]
    both = ("together", race.LotkaVolterra(pair), arc[None], arc), ("apart", apart, lines, end)
    for name, model, *parts in both:
        path = jax.vmap(lambda start, model=model: model.solve(start, ts))(starts)
        for part, values in zip(("path", "line", "rest"), (path, *parts), strict=True):
            dims = *(f"{name}_{part}_{k}" for k in range(values.ndim - 1)), "plane"
            found[f"{name}_{part}"] = (dims, values, f"views {name}: {part} in the phase plane")
    return found


def measure(o: Options, data: xr.Dataset) -> Numbers:
    """All numbers that checks, text and figure quote: facts, and each set-up of each claim."""
    found, right = samples(o, data), {row[1]: list[bool]() for row in ROWS}
    numbers = facts(data, found)
    table = ["| | set-up: number, median (quartiles) | runs | R is right |", "|---|---|---|---|"]
    for key, claim, number, low, high, expected, place in ROWS:
        values, error = found[number, place], 0.0
        value, *spread = np.quantile(1.0 * values, (0.5, 0.25, 0.75))
        if values.dtype == bool:  # races won: a fraction with its standard error over seeds
            value, error = values.mean(), values.mean(axis=1).std() / len(values) ** 0.5
            spread = [value - error, value + error]
        inside = min(value - low, high - value)
        right[claim].append(inside >= 0)
        numbers |= {key: (inside if expected else -inside) + 2 * error, f"{key}_value": value}
        text = f"{place}: {number} {value:.4g} ({spread[0]:.4g}, {spread[1]:.4g})"
        table.append(f"| {key} | {text} | {values.size} | {'yes' if inside >= 0 else 'no'} |")
        numbers[f"{key}_text"] = f"{text}, {'in' if expected else 'outside'} {low:g} to {high:g}"
    words = "does not hold", "holds under conditions", "holds"
    verdicts = {f"{key}_verdict": words[any(x) + all(x)] for key, x in right.items()}
    none, some, hold = map(list(verdicts.values()).count, words)
    counts = {"none": none, "some": some, "hold": hold}
    return numbers | verdicts | counts | {"setups": "\n".join(table)}


def facts(data: xr.Dataset, found: Samples) -> Numbers:
    """Facts that do not depend on a claim, and further numbers of text and figure."""
    path, cross, lost = (data[x].values for x in ("course_L2", "course_entropy", "depth_race"))
    hits, clock = data["accuracy"].values, np.log(cross / cross[:, :1]) / runs.UNEQUAL
    ratios, beta = data["momentum_ratio"].median("start").values, data["beta"].values[:3]
    effect, kappa, own = ratios[:3, -1] - 1, float(data["momentum_first_order"]), hits[2].min(-1)
    order = kappa * data["step"].values[-1] * (1 + beta) / (1 - beta)
    flow = race.LotkaVolterra(runs.PAIR).limit(runs.START * np.sqrt(runs.PAIR))
    views = {place: values for (number, place), values in found.items() if number == "views / M"}
    end = data["share_L2"].sel(setup_L2="unequal, small").values
    numbers: Numbers = {"views": views, "kappa": kappa, "at_small": own[0, 1], "at_tiny": own[0, 2]}
    numbers |= {f"gates_{name}": np.median(found["gates", f"{name} 0.01"]) for name in TASKS}
    numbers |= {"depth_rule": own[1:, 1].min(), "forgotten": own[0, 2] - own[0, 1]}
    numbers |= {"small_step": np.abs(effect).max(), "first_order": np.abs(effect / order - 1).max()}
    for k, n in enumerate(DEPTHS):
        law = np.max([x for (a, y), x in found.items() if a == "off law" and f"L{n} aligned" in y])
        numbers |= {f"rule_at_L{n}": hits[0, k, 1].mean(), f"race_{n}": lost[k], f"law_{n}": law}
    return numbers | {
        "clock_end": abs(float(data["clock_limit"]) - REFERENCE_CLOCK),
        "frozen": np.abs(data["clock_frozen"].values - REFERENCE_FROZEN).max(),
        "exact_depth": np.abs(lost - REFERENCE_DEPTH).max(),
        "summary": found["off R's equation", "L2 aligned"].max(),
        "decay": 1 - (path[:, -1] / path.max(axis=1)).min(),
        "all_views": abs(np.median([views["L2 p = 0.8"], views["L2 p = 0.5"]]) - 1),
        "drift": found["drift", "L2 aligned, equal"].max(),
        "reversed": ratios[-1, 0] * float(flow[1] / flow[0]),
        "clocks": np.abs(clock - clock[..., :1]).max() / clock.max(),
        "soft": np.median(np.abs(views["L2 smooth"] - views["L2 unequal, small"])),
        "one_view": abs(np.median(views["L4 aligned, equal"]) - 1 / runs.VIEWS),
        "remains": np.median(found["loser/winner", "L2 equal"]),
        "total": np.median(np.sqrt(end[..., 2] / end[..., 0])),
    }


def samples(o: Options, data: xr.Dataset) -> Samples:
    """The numbers of all set-ups, run by run."""
    found, hits = Samples(), data["accuracy"][0, :, 1]
    for n in DEPTHS:
        for setup in data[f"setup_L{n}"].values:
            found |= of_networks(data, f"L{n}", setup)
        found["loser/winner", f"L{n} exact"] = data["depth_race"].sel(depth=[n]).values
    for place in [x for number, x in found if number == "loser/winner" and "L2" not in x]:
        less = found["loser/winner", f"L{int(place[1]) - 1}{place[2:]}"]
        found["over L - 1", place] = found["loser/winner", place] / np.median(less)
    exact = {f"L{n} {x}": hits.sel(depth=n, distribution=x) for n in DEPTHS for x in SPREADS}
    exact["L2 equal rates, half-normal"] = data["accuracy_equal"]
    for place, hit in exact.items():  # as races, of which so many are won
        found["exact races", place] = np.arange(o.draws)[:, None] < round(float(hit) * o.draws)
    path, cross = data["course_L2"].values, data["course_entropy"].values
    ratio, rows = cross[..., 2] / cross[..., 0], np.arange(len(cross))
    # Cross-entropy from the time at which squared error has explained 99 %.
    when = data["time_L2"].values[(path.sum(axis=-1) > LATE[0]).argmax(axis=1)]
    froze = np.searchsorted(data["time_entropy"].values, when)
    found["loser/winner", "L2 aligned"] = path[:, -1, 2] / path[:, -1, 0]
    for name, start in (("t = 0", 0), ("when squared error froze", froze)):
        found[f"cross-entropy, over {name}", "L2 aligned"] = ratio[:, -1] / ratio[rows, start]
    for size, k in (("largest step", 0), ("smallest step", -1)):
        found[size, "beta 0.9, batches"] = data["batch_ratio"].values[k]
        for beta, ratios in zip(data["beta"].values, data["momentum_ratio"].values, strict=True):
            found[size, f"beta {beta:g}"] = ratios[k]
    for task in TASKS:
        gap = abs(data[f"loss_relu_{task}"] - data[f"loss_frozen_{task}"]).max(f"step_{task}")
        for k, size in enumerate((0.01, 0.1, 0.6)):
            found["gates", f"{task} {size:g}"] = data[f"gates_changed_power_{task}"].values[k]
            found["off frozen", f"{task} {size:g}"] = gap.values[k]
        found["off the gated network", task] = data[f"identity_{task}"].values
    return found


def of_networks(data: xr.Dataset, tag: str, setup: str) -> Samples:
    """Numbers of the networks of one depth and set-up (seed, ...), NaN where there are none."""
    here, t = data.sel({f"setup_{tag}": setup}), data[f"time_{tag}"].values[:, None]
    share, end, laws = (here[f"{name}_{tag}"].values for name in ("shares", "share", "laws"))
    total, winner = share.sum(axis=-1, keepdims=True), end.argmax(axis=-1)
    with np.errstate(all="ignore"):
        rates, before = [], 2 * (SIGMA[0] - SIGMA[1:])
        for low, high in (EARLY, LATE):  # slopes of ln(share) while the total is between
            inside = ((total > low) & (total < high)).astype(float)
            inside /= inside.sum(axis=2, keepdims=True)
            away = inside * (t - np.sum(inside * t, axis=2, keepdims=True))
            logs = np.log(np.where(inside > 0, share, 1.0))
            rates.append(np.sum(away * logs, axis=2) / np.sum(away * t, axis=2))
        first = np.gradient(np.log(share[:, 0]), t[:, 0], axis=1)
        early_end = (total[:, 0, :, 0] < EARLY[1]).sum(axis=1) - 1
        kept, weakest = share / share[..., :1], end.argmin(axis=-1)[..., None]
        ratio = share.min(axis=-1) / share.max(axis=-1)
        numbers = {
            "off law": np.abs(share - laws[0][:, None]).max(axis=(1, 2, 3)),
            "off R's equation": np.abs(share - laws[1][:, None]).max(axis=(1, 2, 3)),
            "rate of √‖P‖ / sigma": rates[0] / SIGMA / 2,
            "rate of ‖P‖ / sigma": rates[0] / SIGMA,
            "rate, 5 % / t = 0": first[np.arange(len(first)), early_end] / first[:, 0],
            "end / peak": np.take_along_axis(end / share.max(axis=2), weakest, axis=-1),
            "early decay / Δsigma": (rates[0][..., :1] - rates[0][..., 1:]) / before,
            "late decay / Δsigma": (rates[1][..., :1] - rates[1][..., 1:]) / before,
            "drift": np.abs(kept / kept[:, :, :1] - 1),
            "loser/winner": ratio[:, :, -1],
            "loser/winner over t = 0": ratio[:, :, -1] / ratio[:, :, 0],
            "by s(0) = ‖P(0)‖": winner == here[f"start_{tag}"].values.argmax(axis=-1),
            "most wins": winner == np.bincount(winner.ravel()).argmax(),
            "views / M": end.sum(axis=-1) ** 2 / np.sum(end**2, axis=-1) / runs.VIEWS,
        }
    return {(number, f"{tag} {setup}"): values for number, values in numbers.items()}
