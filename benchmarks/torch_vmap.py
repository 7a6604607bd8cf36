"""Baseline (b): PyTorch with batched weights and `torch.func.vmap` over seeds."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.func import grad_and_value, vmap

Weights = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def train_vmap(
    starts: Sequence[Mapping[str, np.ndarray]],
    routes: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    *,
    rate: float,
    steps: int,
    save_every: int,
    values: bool = True,
) -> tuple[np.ndarray, list]:
    """All networks at once, a Python loop over steps; losses (seed, save) and singular values."""
    inputs, outputs = routes.max(axis=0) + 1
    pairs = torch.tensor(routes)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)

    def stack(name: str, count: int) -> torch.Tensor:
        arrays = [np.stack([start[name.format(i)] for i in range(count)]) for start in starts]
        return torch.tensor(np.stack(arrays), dtype=torch.float32)

    weights = (stack("x{}->h1", inputs), stack("h1->h2", 1)[:, 0], stack("h2->y{}", outputs))

    def loss(weights: Weights) -> torch.Tensor:
        encoders, hidden, decoders = weights
        codes = torch.einsum("gh,mhx,nx->mng", hidden, encoders, x)
        found = torch.einsum("rng,ryg->rny", codes[pairs[:, 0]], decoders[pairs[:, 1]])
        return 0.5 * torch.sum((y - found) ** 2) / (len(pairs) * len(x))

    gradient = vmap(grad_and_value(loss))
    losses, measured = [], []
    for step in range(steps + 1):
        slopes, now = gradient(weights)
        if step % save_every == 0:
            losses.append(now.numpy())
            if values:
                measured.append([torch.linalg.svdvals(w).numpy() for w in weights])
        if step < steps:
            weights = tuple(w - rate * slope for w, slope in zip(weights, slopes, strict=True))
    return np.stack(losses, axis=1), measured
