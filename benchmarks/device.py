"""Our side of the rows on whatever device there is: `python -m benchmarks.device [--quick]`.

Prints per job the card, its seconds, the ratio to this machine's CPU, and the fraction of the
card's peak: FLOP/s of products over that of one large product, or bytes per second over that of a
copy, whichever is nearer to its limit, both measured in the same run.
"""

import argparse
from collections.abc import Callable, Sequence

import jax
import numpy as np

import gdln_jax as gdln
from benchmarks import measuring, programs
from benchmarks.table import machine


def routing(quick: bool) -> programs.Work:
    """N Fig. 4: 10 seeds x 500 steps, singular values every 2 steps."""
    seeds, steps = (2, 20) if quick else (10, 500)
    return programs.training(
        gdln.tasks.routing(7, 4), (0.2,), seeds, rate=0.02, steps=steps, save_every=2, values=True
    )


def initialisation(quick: bool) -> programs.Work:
    """N Fig. 6: 6 initial scales x 20 seeds x 700 steps."""
    scales = np.geomspace(0.01, 1.0, 2 if quick else 6).tolist()
    seeds, steps = (2, 20) if quick else (20, 700)
    return programs.training(
        gdln.tasks.routing(7, 4), scales, seeds, rate=0.02, steps=steps, save_every=10, values=False
    )


def image_steps(quick: bool) -> programs.Work:
    """N Sec. 5: M = 100, K = 40, 784-128-128-10, batch 8, momentum; 20 steps."""
    m, k, pixels, width, steps = (4, 2, 20, 8, 3) if quick else (100, 40, 784, 128, 20)
    rng = np.random.default_rng(1)
    batches = rng.normal(size=(steps, m, 8, pixels))
    labels = rng.integers(10, size=(steps, 8))
    return programs.trainer_steps(m, k, batches, labels, width=width, rate=1e-3, momentum=0.9)


JOBS: dict[str, Callable[[bool], programs.Work]] = {
    "routing": routing,
    "initialisation": initialisation,
    "image steps": image_steps,
}


def measure(name: str, device: jax.Device, *, quick: bool) -> tuple[float, float, float, float]:
    """Seconds cold and warm (the best of three), and the fractions of both peaks of `device`."""
    with jax.default_device(device):
        work = JOBS[name](quick)
        cold, _ = measuring.seconds(work.run)
        warm = min(measuring.seconds(work.run)[0] for _ in range(3))
        # Measured again for each device, so past the cache.
        products = measuring.product_rate.__wrapped__(512 if quick else 4096)
        copies = measuring.copy_rate.__wrapped__(16 if quick else 1024)
    return cold, warm, work.flops / warm / products, work.traffic / warm / copies


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table for the default device, beside the CPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    quick = parser.parse_args(arguments).quick
    cpu, card = jax.devices("cpu")[0], jax.devices()[0]
    print(f"{', '.join(f'{key} {value}' for key, value in machine().items())}\n")
    print("| job | card | cold (s) | warm (s) | CPU warm (s) | CPU / card | of the peak |")
    print("|---|---|---|---|---|---|---|")
    for name in JOBS:
        cold, warm, products, copies = measure(name, card, quick=quick)
        on_cpu = warm if card == cpu else measure(name, cpu, quick=quick)[1]
        peak = f"{products:.1%} of FLOP/s" if products >= copies else f"{copies:.1%} of bytes/s"
        cells = (name, card.device_kind, f"{cold:.3g}", f"{warm:.3g}", f"{on_cpu:.3g}",
                 f"{on_cpu / warm:.3g}x", peak)  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
