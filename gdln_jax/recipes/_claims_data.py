"""The numbers of the claims as one labelled data set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from gdln_jax.race import WinnerMap
from gdln_jax.recipes import _claims_theory as theory
from gdln_jax.recipes._claims_measured import Measured
from gdln_jax.recipes._claims_networks import Races
from gdln_jax.recipes._claims_table import Claim


def dataset(
    found: Measured,
    claims: Sequence[Claim],
    clock: theory.Clock,
    portraits: tuple[theory.Portrait, theory.Portrait],
    maps: dict[int, WinnerMap],
) -> xr.Dataset:
    """Everything that the table and the picture show, by name."""
    data = xr.Dataset(coords={"view": np.arange(1, 4), "plane": ["first", "second"]})

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str, units: str = "") -> None:
        attributes = {"long_name": meaning} | ({"units": units} if units else {})
        data[name] = (dims, np.asarray(values), attributes)

    _add_claims(add, claims)
    add("clock_time", ("clock_time",), clock.ts, "time of R's equation")
    add("clock", ("clock_time",), clock.clock, "common clock T(t), rates 1, .9, .8, s(0) = .01")
    add("clock_strength", ("clock_time", "view"), clock.strengths, "s_m(t)")
    add("clock_limit", (), clock.clock_limit, "T_inf")
    add("clock_frozen", ("view",), clock.limit, "s_m(inf)")
    add("clock_phase", ("phase",), clock.phases, "ends of the exponential phase and competition")
    for name, one in zip(("together", "apart"), portraits, strict=True):
        grid, line = f"{name}_grid", f"{name}_line"
        add(grid, (grid,), one.axis, "grid of the phase portrait")
        add(f"{name}_velocity", (f"{grid}_2", grid, "plane"), one.velocity, "velocity there")
        add(f"{name}_path", (f"{name}_start", f"{name}_step", "plane"), one.paths, "trajectories")
        add(line, (f"{name}_lines", f"{line}_point", "plane"), one.lines, "nullclines off the axes")
        add(f"{name}_rest", (f"{name}_rests", "plane"), one.rest, "where the flow ends")
    data = data.assign_coords(depth=list(maps))
    first = maps[theory.DEPTHS[0]]
    add("rate_ratio", ("rate_ratio",), first.rate_ratios, "rate of view 2 over view 1")
    add("start_ratio", ("start_ratio",), first.initial_ratios, "layer strength u0, 2 over 1")
    grid = ("depth", "rate_ratio", "start_ratio")
    for name, meaning in (
        ("share", "final share of view 2"),
        ("summary", "1: R's rule, argmax rate u0, names view 2"),
        ("by_depth", "1: argmax rate u0^(L-2) names view 2"),
    ):
        field = {"by_depth": "depth"}.get(name, name)
        add(f"map_{name}", grid, np.stack([getattr(m, field) for m in maps.values()]), meaning)
    for name, kind in (("summary", "R's rule"), ("depth", "rate u0^(L-2)")):
        values = [float(getattr(m, f"{name}_accuracy")) for m in maps.values()]
        add(f"map_accuracy_{name}", ("depth",), values, f"fraction of the map right by {kind}")
    data = data.assign_coords(
        rule=list(theory.RULES), scale=list(theory.SCALES), distribution=list(theory.DISTRIBUTIONS)
    )
    add("accuracy", ("rule", "depth", "scale", "distribution"), found.accuracy,
        "fraction of races of 3 views whose winner the rule names")  # fmt: skip
    add("depth_race", ("depth",), found.depth_race, "final loser/winner, u0 = .1 and .09")
    for layers, races in found.races.items():
        _add_races(add, races, f"L{layers + 1}")
    _add_races(add, found.entropy, "entropy")
    _add_descent(add, found)
    return data


def _add_claims(add: Any, claims: Sequence[Claim]) -> None:
    add("claim", ("claim",), [c.key for c in claims], "claim of R")
    for name in ("claim", "verdict", "experiment", "measure", "corrected"):
        add(f"claim_{name}", ("claim",), [getattr(c, name) for c in claims], name)
    pairs = [(c.key, case) for c in claims for case in c.cases]
    add("case_claim", ("case",), [key for key, _ in pairs], "claim that the set-up tests")
    add("case_setup", ("case",), [case.setup for _, case in pairs], "set-up")
    for name, values, meaning in (
        ("value", [case.value for _, case in pairs], "median over runs"),
        ("q25", [case.spread[0] for _, case in pairs], "lower quartile (of fractions: - 1 error)"),
        ("q75", [case.spread[1] for _, case in pairs], "upper quartile (of fractions: + 1 error)"),
        ("low", [case.limits[0] for _, case in pairs], "the claim asks for at least"),
        ("high", [case.limits[1] for _, case in pairs], "the claim asks for at most"),
        ("runs", [case.runs for _, case in pairs], "number of runs"),
        ("holds", [int(case.holds) for _, case in pairs], "1: as the claim has it"),
        ("expected", [int(case.expected) for _, case in pairs], "the same by known laws"),
    ):
        add(f"case_{name}", ("case",), values, meaning)


def _add_races(add: Any, races: Races, tag: str) -> None:
    """Final shares of all set-ups, and the time courses of the first class of the aligned one."""
    k = races.index("aligned")
    add(f"setup_{tag}", (f"setup_{tag}",), [s.name for s in races.setups], "set-up of networks")
    add(f"share_{tag}", (f"setup_{tag}", "seed", "class", "view"), races.share[:, :, :, -1],
        "final share of the output of a class")  # fmt: skip
    add(f"time_{tag}", (f"time_{tag}",), races.ts, "time", "tau")
    add(f"course_{tag}", ("seed", f"time_{tag}", "view"), races.share[k, :, 0],
        "share of the output, aligned start, rates 1 : .9 : .8, first class")  # fmt: skip


def _add_descent(add: Any, found: Measured) -> None:
    m = found.momentum
    add("beta", ("beta",), m.betas, "momentum")
    add("step", ("step",), m.steps, "flow time per step, eta/(1 - beta)", "tau")
    add("momentum_ratio", ("beta", "step", "start"), m.ratio, "final s_2/s_1 over that of the flow")
    add("momentum_first_order", (), found.first_order,
        "d(momentum_ratio)/d kappa at 0, kappa = step (1 + beta)/(1 - beta)")  # fmt: skip
    add("batch_step", ("batch_step",), m.batch_steps, "flow time per step, batches of 1 of 4")
    add("batch_ratio", ("batch_step", "batch_run"), m.batch_ratio, "the same, with batches")
    for g in found.gates:
        size, step = f"size_{g.task}", f"step_{g.task}"
        add(size, (size,), g.sizes, "standard deviation of initial weights")
        add(step, (step,), g.steps, "step of gradient descent")
        for name, values, meaning in (
            ("gates_changed", g.changed, "fraction of gates changed in training"),
            ("gates_changed_power", g.changed_power, "the same, units weighted by output"),
        ):
            add(f"{name}_{g.task}", (size, "relu_seed"), values, meaning)
        for name, values in (("relu", g.losses), ("frozen", g.frozen)):
            add(f"loss_{name}_{g.task}", (size, "relu_seed", step), values, "loss over L(0)")
