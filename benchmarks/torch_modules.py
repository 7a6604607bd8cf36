"""Baseline (a): PyTorch, one module per edge, trained in a Python loop over epochs and seeds.

Written as this field's scripts are: `nn.Linear`s in a `ModuleList`, an optimiser, a loop, and a
forward pass for every trained route. `once` is the better way: an input is encoded once for all
its outputs.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn


class RoutingModules(nn.Module):
    """Encoders, a shared hidden layer and decoders (N Fig. 4a), a module each."""

    def __init__(self, weights: Mapping[str, np.ndarray], routes: np.ndarray, *, once: bool):
        super().__init__()
        self.once = once
        inputs, outputs = sorted(set(routes[:, 0])), sorted(set(routes[:, 1]))
        self.encoders = nn.ModuleList(_linear(weights[f"x{i}->h1"]) for i in inputs)
        self.hidden = _linear(weights["h1->h2"])
        self.decoders = nn.ModuleList(_linear(weights[f"h2->y{j}"]) for j in outputs)
        self.trained = [routes[routes[:, 0] == i, 1].tolist() for i in inputs]
        self.num_routes = len(routes)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Half mean squared norm over all trained routes."""
        total = torch.zeros(())
        for encoder, outputs in zip(self.encoders, self.trained, strict=True):
            code = self.hidden(encoder(x)) if self.once else None
            for j in outputs:
                code = code if self.once else self.hidden(encoder(x))
                total = total + 0.5 * torch.sum((y - self.decoders[j](code)) ** 2)
        return total / (self.num_routes * len(x))

    def singular_values(self) -> list[np.ndarray]:
        """Of the encoders, the hidden layer and the decoders, in that order."""
        layers = [*self.encoders, self.hidden, *self.decoders]
        return [torch.linalg.svdvals(layer.weight.detach()).numpy() for layer in layers]


def train_modules(
    starts: Sequence[Mapping[str, np.ndarray]],
    routes: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    *,
    rate: float,
    steps: int,
    save_every: int,
    values: bool = True,
    once: bool = False,
) -> tuple[np.ndarray, list]:
    """Full-batch gradient descent of one network per start; losses (seed, save) and values."""
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    losses, measured = [], []
    for weights in starts:
        model = RoutingModules(weights, routes, once=once)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        curve, seen = [], []
        for step in range(steps + 1):
            loss = model.loss(x, y)
            if step % save_every == 0:
                curve.append(loss.item())
                if values:
                    seen.append(model.singular_values())
            if step < steps:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        losses.append(curve)
        measured.append(seen)
    return np.array(losses), measured


class ImageModules(nn.Module):
    """Encoders, hidden layers and decoders of N Sec. 5.

    A forward pass for every trained route as in the scripts or, `grouped`, the better way: inputs
    encoded once, and the codes of all inputs of a decoder sent through it together.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], routes: np.ndarray, *, grouped: bool):
        super().__init__()
        inputs, outputs = sorted(set(routes[:, 0])), sorted(set(routes[:, 1]))
        self.encoders = nn.ModuleList(_linear(weights[f"x{i}->h1"]) for i in inputs)
        self.hidden = _linear(weights["h1->h2"])
        self.decoders = nn.ModuleList(_linear(weights[f"h2->y{j}"]) for j in outputs)
        self.sources = [torch.tensor(routes[routes[:, 1] == j, 0]) for j in outputs]
        self.routes = routes.tolist()
        self.grouped = grouped

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Of inputs x (domain, example, pixel) and targets y (domain, example, class)."""
        total = torch.zeros(())
        if self.grouped:
            codes = torch.stack([f(part) for f, part in zip(self.encoders, x, strict=True)])
            codes = self.hidden(codes)
            for decoder, sources, target in zip(self.decoders, self.sources, y, strict=True):
                total = total + 0.5 * torch.sum((target - decoder(codes[sources])) ** 2)
        else:
            for i, j in self.routes:
                found = self.decoders[j](self.hidden(self.encoders[i](x[i])))
                total = total + 0.5 * torch.sum((y[j] - found) ** 2)
        return total / (len(self.routes) * x.shape[1])


def train_images(
    model: ImageModules, optimizer: torch.optim.Optimizer, batches: Sequence
) -> list[float]:
    """One step per batch; losses before each step."""
    losses = []
    for x, y in batches:
        loss = model.loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def full_gradient(model: ImageModules, x: torch.Tensor, y: torch.Tensor, *, size: int) -> float:
    """Loss over all examples (domain, example, ...), its gradient left in `.grad`, in batches."""
    model.zero_grad()
    total = 0.0
    for begin in range(0, x.shape[1], size):
        part = slice(begin, begin + size)
        loss = model.loss(x[:, part], y[:, part]) * (x[:, part].shape[1] / x.shape[1])
        loss.backward()
        total += loss.item()
    return total


def _linear(weight: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.asarray(weight), dtype=torch.float32))
    return layer
