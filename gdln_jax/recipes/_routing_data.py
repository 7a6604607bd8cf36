"""The routing figure's numbers as one labelled data set, with units and meanings."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from gdln_jax.recipes.routing import Final, Plan, Runs
else:  # that room imports this one
    Final = Plan = Runs = Any


def dataset(plan: Plan, runs: Runs, final: Final, starts: dict[str, tuple[Any, Any]]) -> xr.Dataset:
    """Everything that the picture shows and the checks use, by name."""
    modes, b = plan.modes, plan.amplitude
    b1, b2 = modes.flow(runs.ts, b, b)
    start = np.sqrt(runs.start.first * runs.start.third)
    seen = runs.descent.measured
    losses = np.asarray(runs.descent.losses)
    trained, untrained = (np.asarray(e)[:-1] for e in seen["errors"])
    first, hidden, third = (np.asarray(a)[:-1] for a in seen["shared"])
    own = [np.asarray(a)[-1] for a in seen["aligned"]]
    flow = [np.asarray(a) for a in runs.flow.measured["aligned"]]
    data = xr.Dataset(
        coords={
            "time": ("time", runs.ts, {"units": "tau"}),
            "flow_time": ("flow_time", np.asarray(runs.flow.ts), {"units": "tau"}),
            "step": ("time", np.asarray(runs.descent.ts[0]), {"long_name": "step of descent"}),
            "seed": np.arange(len(final.errors)),
            "mode": np.arange(1, len(modes.s) + 1),
            "input": np.arange(plan.options.domains),
            "output": np.arange(plan.options.domains),
            "probe": list(final.probes),
        }
    )

    def add(name: str, dims: tuple[str, ...], values: Any, meaning: str) -> None:
        data[name] = (dims, np.asarray(values), {"long_name": meaning})

    add("s", ("mode",), modes.s, "strength of the mode in the base data's Sigma^yx")
    add("d", ("mode",), modes.d, "variance of the mode in the base data's Sigma^x")
    add("pattern", ("input", "output"), plan.pattern, "1: route is trained")

    note = "loss L (half mean squared norm), "
    add("loss_random", ("seed", "time"), losses[:-1], note + "random networks, descent")
    add("loss_decoupled", ("time",), losses[-1], note + "decoupled network, descent")
    add("loss_flow", ("flow_time",), runs.flow.losses, note + "decoupled network, flow")
    add("loss_theory", ("time",), modes.loss(b1, b2), note + "N Eq. 15 from b(0)")
    for name, values in starts.items():
        add(
            f"loss_theory_{name}", ("time",), modes.loss(*modes.flow(runs.ts, *values)),
            f"N Eq. 15 from the {name} initial values of the random networks",
        )  # fmt: skip

    add("b1_theory", ("time", "mode"), b1, "B1 = B3, first and third layer, theory")
    add("b2_theory", ("time", "mode"), b2, "B2, hidden layer, theory")
    add("b1_decoupled", ("time", "mode"), own[0].mean(axis=1), "B1, decoupled, descent, mean edge")
    add("b2_decoupled", ("time", "mode"), own[1][:, 0], "B2, decoupled, descent")
    add("b3_decoupled", ("time", "mode"), own[2].mean(axis=1), "B3, decoupled, descent, mean edge")
    add("b1_flow", ("flow_time", "mode"), flow[0].mean(axis=1), "B1, decoupled, flow, mean edge")
    add("b2_flow", ("flow_time", "mode"), flow[1][:, 0], "B2, decoupled, flow")
    add("b1_random", ("seed", "time", "mode"), first, "|mean W1 v|, random networks")
    add("b2_random", ("seed", "time", "mode"), hidden, "W2 along the shared code, random networks")
    add("b3_random", ("seed", "time", "mode"), third, "|mean W3^T u|, random networks")

    add("b1_projected", ("seed", "mode"), start, "B1(0) by projection of the initial weights (E9)")
    add("b2_projected", ("seed", "mode"), runs.start.hidden, "B2(0) by projection")
    add("b0_fitted", ("seed",), runs.fitted, "B1(0) = B2(0) whose Eq. 15 fits the loss best")
    add("b0_misfit", ("seed",), runs.misfit, "rms misfit of that fit, fraction of 1/2 <|y|^2>")

    note = "relative error against the best linear map, mean over "
    add("error_trained", ("seed", "time"), trained, note + "trained routes")
    add("error_untrained", ("seed", "time"), untrained, note + "untrained routes")
    add(
        "route_error",
        ("seed", "input", "output"),
        final.errors,
        "relative error by route, at the end",
    )
    add(
        "similarity", ("seed", "presentation", "presentation2"), final.similarity,
        "dot products at h1 at the end; presentations are input domains times probes",
    )  # fmt: skip
    add("domain_alignment", ("seed",), final.alignment, "mean cosine of one item across domains")
    add("target", ("probe", "feature"), final.target, "best linear prediction for each probe")
    add(
        "output", ("seed", "input", "output", "probe", "feature"), final.outputs, "network's output"
    )
    data.attrs["title"] = "Routing, N Fig. 4"
    data.attrs["base"] = plan.base.origin
    return data
