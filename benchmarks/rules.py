"""Discrete training on one variable per class, beside the full network, for growing M."""

import jax
import numpy as np

import gdln_jax as gdln
from benchmarks import measuring
from benchmarks.table import Row
from gdln_jax import rules

# The full network of M = 1000 would hold 2 GB of activities; its time follows from the smaller.
_FULL = 100


def measure(quick: bool) -> list[Row]:
    """Routing with K = 4: descent with momentum, 2000 steps on the quotient, fewer on the network.

    The baseline is `train` on the full network with the same rule, in time per 2000 steps; both
    start from the same strengths, and the losses are compared.
    """
    steps, full_steps = (20, 10) if quick else (2000, 200)
    rows = []
    for m in (4, 8) if quick else (10, 100, 1000):
        task = gdln.tasks.routing(m, min(4, m), compact=True, width=8)
        rule = rules.sgd(0.02, momentum=0.5)
        reduction = gdln.reduce(task.graph, task.data)
        quotient = reduction.quotient(0.3, rule=rule)

        def ours(quotient=quotient, rule=rule, count=steps):
            return quotient.train(rule=rule, steps=count, save_every=count // 10)

        cold, run = measuring.seconds(ours)
        sizes = f"M {m}, K {min(4, m)}, {len(quotient.labels)} edges, {steps} steps"
        what, note = "training in mode coordinates, by classes", f"{len(quotient.classes)} classes"
        if m > _FULL:
            warm, _ = measuring.seconds(ours)
            rows.append(Row(what, sizes, "", cold, warm, note=f"{note}."))
            continue
        net = reduction.embed(0.3)

        def full(net=net, task=task, rule=rule):
            return gdln.train(
                net, task.data, optimizer=rule, steps=full_steps, save_every=full_steps // 10,
                keep_models=False,
            ).losses  # fmt: skip

        losses = np.asarray(full())
        few = quotient.train(rule=rule, steps=full_steps, save_every=full_steps // 10)
        gap = float(np.max(np.abs(few.losses - losses)) / losses[0])
        warm, other = measuring.alternate(
            lambda ours=ours: jax.block_until_ready(ours().losses), full, repeats=2 if quick else 3
        )
        rows.append(
            Row(
                what,
                sizes,
                "train on the full network",
                cold,
                warm,
                other * steps / full_steps,
                gap=gap,
                note=f"{note}; last loss {float(run.losses[-1]):.3g}; the network took "
                f"{full_steps} of the steps.",
            )
        )
    return rows
