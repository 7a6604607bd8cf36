"""What is settled before training: base data, N Eq. 13-15 of their modes, scales and steps."""

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike

import gdln_jax as gdln
from gdln_jax import exact, tasks
from gdln_jax.recipes._core import ensembles as sim
from gdln_jax.recipes._core.options import OptionError
from gdln_jax.recipes.routing import Options

CHUNK = 1024  # values of a call of the closed form: one compiled program serves all shapes
_closed_form = jax.jit(exact.routing_mode)
ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


def load_base(source: str, whiten: bool | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Load x (n, d), y (n, k) and their origin; whitened unless they are the hierarchy's.

    Whitened, <x x^T> = I shares its frame with any Sigma^yx. Of many rows d + k are made, of the
    same second moments, which is all that a gated linear network with squared error depends on.
    """
    if source == "hierarchy":
        y = tasks.hierarchy_features().T
        x, origin = np.eye(len(y)), "hierarchy of N Fig. 4c"
    elif source == "digits":
        from sklearn.datasets import load_digits

        images, labels = (np.asarray(a) for a in load_digits(return_X_y=True))
        x, y, origin = images / 16, np.eye(10)[labels], "scikit-learn's digits"  # pixels: 0 to 16
    else:
        try:
            file, origin = np.load(source), Path(source).name
            x, y = tasks.routing(1, base=(file["x"], file["y"])).meta["base"]
        except (OSError, EOFError, LookupError, zipfile.BadZipFile) as error:
            known = "hierarchy, digits nor a file FILE.npz with arrays x (n, d) and y (n, k)"
            raise OptionError(f"base {source!r} is neither {known}: {error}") from None
    if source != "hierarchy" if whiten is None else whiten:
        left, scale, _ = np.linalg.svd(x, full_matrices=False)
        rank = int((scale > scale[0] * max(x.shape) * np.finfo(float).eps).sum())
        origin = f"{origin}, inputs whitened ({rank} of {x.shape[1]} directions)"
        x = np.sqrt(len(x)) * left[:, :rank]
    joint, d = np.concatenate([x, y], axis=1), x.shape[1]
    if len(joint) > (few := joint.shape[1]):
        origin = f"{origin}, condensed from {len(joint)} to {few} rows of equal moments"
        joint = np.linalg.qr(joint, mode="r") * np.sqrt(few / len(joint))
    return joint[:, :d], joint[:, d:], origin


@dataclass(frozen=True)
class Modes:
    """Modes of the base data: strengths s and variances d (mode,), not divided by K M.

    A theory of scalars that knows no network: what it is compared with are full networks.
    """

    s: np.ndarray
    d: np.ndarray
    half_trace: float  # 1/2 <|y|^2>, the loss of an output of 0
    num_domains: int

    def loss(self, b1: np.ndarray, b2: np.ndarray) -> np.ndarray:
        """Return the loss at strengths (..., mode)."""
        change = (self.s - self.d * b2 * b1**2) ** 2 - self.s**2
        return np.asarray(self.half_trace + 0.5 * np.sum(change / self.d, axis=-1))

    def flow(self, t: ArrayLike, b1: ArrayLike, b2: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return B1(t), B2(t) (..., time, mode) by N Eq. 15 and E8; B1(0), B2(0) broadcast."""
        m, time = float(self.num_domains), np.asarray(t, float)[..., None]
        time, s, d, b1, b2 = np.broadcast_arrays(time, self.s, self.d, b1, b2)
        c = m * b1**2 - b2**2
        # Filled up with the first value, so that every one is legitimate.
        more = np.zeros(-c.size % CHUNK)
        flat = np.stack([np.append(a, more + a.flat[0]) for a in (time, s, d, b2, c)])
        parts = np.split(flat, flat.shape[1] // CHUNK, axis=1)
        values = np.concatenate([_closed_form(*part[:4], m, c=part[4]) for part in parts])
        hidden = values[: c.size].reshape(c.shape)
        return np.sqrt((hidden**2 + c) / m), hidden


class Plan(NamedTuple):
    """What the options settle; `order` sorts the modes of the reduction, u and v are frames."""

    task: tasks.Task
    origin: str
    reduction: gdln.Reduction
    order: np.ndarray
    modes: Modes
    u: np.ndarray
    v: np.ndarray
    b0: float
    scale: float
    rate: float

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the best linear prediction (n, y) from `x` (n, x)."""
        return (x @ self.v * (self.modes.s / self.modes.d)) @ self.u.T


def make_plan(o: Options) -> Plan:
    """Load the base data, refuse what Eq. 13-15 do not cover, and choose scales and step."""
    x, y, origin = load_base(o.base, o.whiten)
    if (rank := np.linalg.matrix_rank(y.T @ x)) > o.width:
        raise OptionError(f"the base data have {rank} modes: use --set width={rank} or more")
    how = {"base": (x, y), "pattern": o.pattern, "key": jax.random.key(o.seed)}
    task = tasks.routing(o.domains, o.trained, width=o.width, **how)
    if not task.meta["biregular"]:
        low, *_, high = sorted(task.meta["pattern"].sum(axis=0))
        raise OptionError(
            f"pattern {o.pattern!r} trains each output with {low} to {high} inputs; Eq. 13-15 "
            f"need {o.trained} (E7): use --set pattern=cyclic or pattern=random_biregular"
        )
    reduction = gdln.reduce(task.graph, task.data)
    (i, j), count = task.meta["routes"][0], len(task.meta["routes"])
    route = f"x{i}", f"y{j}"
    s, d = count * reduction.strengths[route], count * reduction.variances[route, route]
    order = np.argsort(-np.asarray(s), kind="stable")
    frames = reduction.frames[f"h2->y{j}"][0], reduction.frames[f"x{i}->h1"][1]
    s, d, u, v = (np.asarray(a)[..., order] for a in (s, d, *frames))
    modes = Modes(s, d, 0.5 * float(np.sum(y**2)) / len(y), o.domains)
    # In the same ratio to the largest final strength, (s/d)^(1/3), as on the hierarchy.
    scaled = float(f"{0.2 * float(np.max(s / d) ** 2 / 185) ** (1 / 6):.2g}")
    b0, scale = o.amplitude or scaled, o.init_scale or scaled
    b1, b2 = modes.flow(np.inf, b0, b0)
    curvature = float(np.max(d * (b1**4 + 2 * b1**2 * b2**2 / o.domains)))  # at the end
    rate = o.learning_rate or float(f"{0.13 / curvature:.1g}")
    return Plan(task, origin, reduction, order, modes, u, v, b0, scale, rate)


def schedule(o: Options, p: Plan, b1: np.ndarray, b2: np.ndarray) -> tuple[int, int]:
    """Return the number of steps, and of steps between records, for networks that start at b."""
    duration, s, d, m = o.duration, p.modes.s, p.modes.d, o.domains
    if duration is None:  # modes that hold all but 0.001 learn 0.999; a third more, and round
        counts = np.cumsum((s**2 / d)[::-1])[::-1] > 1e-3 * np.sum(s**2 / d)
        _, end = replace(p.modes, s=0.999 * s).flow(np.inf, b1, b2)
        times = np.asarray(exact.routing_time(end, s, d, b2, m, c=m * b1**2 - b2**2))
        least = min(1.3 * float(times[counts].max()), 1e12)
        power = 10.0 ** np.floor(np.log10(least))
        duration = float(next(r * power for r in ROUND if r * power >= least))
    if (steps := duration / p.rate) > 60_000:
        change = "set init_scale or amplitude higher, or duration lower"
        raise OptionError(f"learning to t = {duration:g} would take {steps:.0f} steps: {change}")
    spacing = sim.spacing(round(steps))
    return max(2, round(steps / spacing)) * spacing, spacing
