"""Which arrays of a checkpoint are the layers of a ReLU network, in which order and layout.

Names say which arrays belong together (`fc1.weight`, `layers.0.bias`, `params/Dense_0/kernel`,
`W1`), numbers in them and shapes say the order, and shapes the layout.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gdln_jax._checks import listed, suggest
from gdln_jax._data.state import NamedArrays, Orientation, check_orientation

# `name.weight` or `name/kernel`; a bare `weight`; `W1`, `b_2`.
_NAMED = re.compile(r"(?:(.*)[./])?(weight|kernel|bias|w|b)", re.IGNORECASE)
_NUMBERED = re.compile(r"(weight|kernel|bias|w|b)s?_?(\d+)", re.IGNORECASE)
_PREFIX = re.compile(r"^(?:module\.|_orig_mod\.|params/)+")
# How frameworks lay out what they call so; other names say nothing.
_LAYOUT: dict[str, Orientation] = {"weight": "out_in", "kernel": "in_out"}
_MAKERS: dict[Orientation, str] = {"out_in": "PyTorch, Equinox", "in_out": "Flax, Keras"}
_NORMS = (
    *("running_mean", "running_var", "num_batches_tracked", "scale", "gamma", "beta"),
    *("moving_mean", "moving_variance", "mean", "var"),
)
# Orders are tried one by one where names do not number all layers.
_MOST = 7


class Layer(NamedTuple):
    """Names in the checkpoint of one layer's weights and, if it has some, biases."""

    name: str
    weight: str
    bias: str | None


class Layout(NamedTuple):
    """Layers, first to last, and how their weights lie."""

    layers: tuple[Layer, ...]
    orientation: Orientation

    def weights(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Weights (..., |target|, |source|) of all layers."""
        found = [arrays[layer.weight] for layer in self.layers]
        return [w.swapaxes(-1, -2) for w in found] if self.orientation == "in_out" else found

    def biases(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
        """Biases (..., |target|), 0 for layers without; None if none has any."""
        if not any(layer.bias for layer in self.layers):
            return None
        return [
            np.zeros(w.shape[:-1], w.dtype) if layer.bias is None else arrays[layer.bias]
            for layer, w in zip(self.layers, self.weights(arrays), strict=True)
        ]

    def __repr__(self) -> str:
        names = ", ".join(layer.name for layer in self.layers)
        return f"layers {names}, weights as {_MAKERS[self.orientation]} have them"


def find_layout(
    read: NamedArrays,
    *,
    layers: Sequence[str] | None = None,
    orientation: Orientation | None = None,
) -> Layout:
    """Find the layers among arrays of weights (|target|, |source|) or their transposes, and biases.

    Args:
        read: of one network.
        layers: those to read, first to last, by their names without `.weight`. Default: all.
        orientation: how weights lie. Default: as their name and their shapes say.

    Raises:
        ValueError: other layers than fully connected ones, shapes that do not fit each other, an
            order or a layout that names and shapes leave open, biases without weights, fewer than
            two layers.
    """
    check_orientation(orientation)
    found, other = _parts(read.arrays)
    if layers is not None:
        found = _chosen(found, layers, read.where)
    else:
        _refuse_others(found, other, read)
    for name, layer in found.items():
        if not layer.weight:
            raise ValueError(
                f"{read.where} has {layer.bias}, but no weights of the layer {name!r}."
            )
    if len(found) < 2:
        raise ValueError(
            f"{read.where} has {'only the layer ' + listed(found) if found else 'no layer'}; a "
            "ReLU network has a hidden layer and a read-out (arrays called fc1.weight, fc1.bias, "
            "... or Dense_0/kernel)."
        )
    orders = _orders(list(found), numbered=layers is not None)
    fits: dict[Orientation, list[tuple[str, ...]]] = {
        way: good
        for way in _MAKERS
        if (good := [o for o in orders if _misfit([found[n] for n in o], read, way) is None])
    }
    if orientation is None:
        _check_way(list(found.values()), read, fits)
    chosen = orientation or _usual(found.values()) or next(iter(fits), "out_in")
    if chosen not in fits:
        raise ValueError(_misfit([found[n] for n in orders[0]], read, chosen))
    if len(fits[chosen]) > 1:
        raise ValueError(
            f"the layers {listed(found)} of {read.where} fit each other in "
            f"{len(fits[chosen])} orders: pass layers=[...], first to last."
        )
    return Layout(tuple(found[name] for name in fits[chosen][0]), chosen)


def _parts(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Layer], list[str]]:
    """Layers by name, and the arrays that are of none."""
    found: dict[str, Layer] = {}
    other = []
    for name, array in arrays.items():
        short = _PREFIX.sub("", name)
        if match := _NAMED.fullmatch(short):
            layer, kind = match[1] or "", match[2]
        elif match := _NUMBERED.fullmatch(short):
            layer, kind = match[2], match[1]
        else:
            if array.ndim:
                other.append(name)
            continue
        known = found.get(layer, Layer(layer, "", None))
        weight = kind.lower() in ("weight", "kernel", "w")
        found[layer] = known._replace(**{"weight" if weight else "bias": name})
    return found, other


def _chosen(found: Mapping[str, Layer], layers: Sequence[str], where: str) -> dict[str, Layer]:
    if isinstance(layers, str) or not layers:
        raise ValueError(f"layers is {layers!r}; give a list of names, first to last.")
    for name in layers:
        if name not in found:
            raise ValueError(
                f"layers names {name!r}, which {where} does not have{suggest(name, found)}; it has "
                f"{listed(found)}."
            )
    return {name: found[name] for name in layers}


def _refuse_others(found: Mapping[str, Layer], other: Sequence[str], read: NamedArrays) -> None:
    """Raise `ValueError` that names the first array of a layer of another kind."""
    for name in read.arrays:
        shape = read.arrays[name].shape
        weight = any(name == layer.weight for layer in found.values())
        if weight and len(shape) > 2:
            kind = "convolutional"
        elif name.rpartition(".")[2].rpartition("/")[2] in _NORMS or (weight and len(shape) < 2):
            kind = "a normalisation"
        elif name in other:
            kind = "of a kind that is not known here"
        else:
            continue
        order = list(found)
        bad = [i for i, k in enumerate(order) if np.ndim(read.arrays.get(found[k].weight, 0)) != 2]
        last = order[bad[-1] + 1 :] if bad else order
        raise ValueError(
            f"{name} of {read.where} has shape {shape}: that layer is {kind}, and only fully "
            "connected layers are read. Take what comes before the last of these as given: make "
            "its outputs on your examples the inputs of the data, and pass the names of the layers "
            f"that follow, layers={last}."
        )


def _orders(names: list[str], *, numbered: bool) -> list[tuple[str, ...]]:
    """Orders that the names allow: the numbers in names of one form increase."""
    if numbered:
        return [tuple(names)]
    forms: dict[str, list[str]] = {}
    for name in sorted(names, key=_numbers):
        forms.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    if len(forms) == 1 and all(_numbers(name) for name in names):
        return [tuple(*forms.values())]
    if len(names) > _MOST:
        raise ValueError(
            f"the names {listed(names)} do not number the layers: pass layers=[...], first to last."
        )
    return [
        order
        for order in itertools.permutations(names)
        if all(_rises([order.index(name) for name in form]) for form in forms.values())
    ]


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]


def _rises(places: Sequence[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(places))


def _misfit(layers: Sequence[Layer], read: NamedArrays, way: str) -> str | None:
    """Why these layers, in this order and layout, are no network; None if they are."""
    before: Layer | None = None
    units = 0
    for layer in layers:
        array = read.arrays[layer.weight]
        if array.ndim != 2:
            return f"{layer.weight} of {read.where} has shape {array.shape}; expected two axes."
        target, source = array.shape if way == "out_in" else array.shape[::-1]
        shown = f"{layer.weight} of {read.where} has shape {array.shape}, {_axes(way)}"
        if before is not None and source != units:
            return (
                f"{shown}, but {before.weight} before it makes {units} units (shape "
                f"{read.arrays[before.weight].shape}): a layer between them is missing, or the "
                "layout or the order is another (layers=, orientation=)."
            )
        if layer.bias is not None and read.arrays[layer.bias].shape != (target,):
            return f"{shown}, but {layer.bias} has shape {read.arrays[layer.bias].shape}."
        before, units = layer, target
    return None


def _axes(way: str) -> str:
    return "(|target|, |source|)" if way == "out_in" else "(|source|, |target|)"


def _usual(layers: Iterable[Layer]) -> Orientation | None:
    """The layout that the names stand for, if all agree."""
    kinds = {re.split(r"[./]", layer.weight)[-1] for layer in layers}
    return _LAYOUT.get(kinds.pop()) if len(kinds) == 1 else None


def _check_way(layers: Sequence[Layer], read: NamedArrays, fits: Iterable[str]) -> None:
    """Refuse a layout that names and shapes leave open, or where they contradict each other."""
    usual, possible = _usual(layers), set(fits)
    shapes = [read.arrays[layer.weight].shape for layer in layers]
    remedy = "; ".join(f"orientation={way!r} ({makers})" for way, makers in _MAKERS.items())
    if len(possible) == 2 and (usual is None or all(a == b for a, b in shapes)):
        raise ValueError(
            f"{layers[0].weight} of {read.where} has shape {shapes[0]}, and the layers fit each "
            f"other in both layouts: pass {remedy}."
        )
    if usual is not None and possible and usual not in possible:
        raise ValueError(
            f"{layers[0].weight} of {read.where} has shape {shapes[0]}: the layers do not fit each "
            f"other as {_axes(usual)}, which is what the name stands for, and they do with the "
            f"other layout: pass {remedy}."
        )
