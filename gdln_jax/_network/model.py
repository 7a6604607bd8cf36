"""Models that say themselves how losses read their predictions."""

import abc
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from gdln_jax._checks import Instead
from gdln_jax._data.arrays import SeveralArrays
from gdln_jax._data.boundary import check_gated_data
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.schedule import Schedule

# (prediction, target, weight): (..., row, width), (..., row, width), (..., row).
Pairs = list[tuple[Array, Array, Array]]


class AbstractModel(SeveralArrays, eqx.Module):
    """A model of this package.

    Any other pytree of floating-point arrays may be trained too: with `mse` and `cross_entropy` if
    it can be called on `GatedData` and returns output node -> predictions, else with a loss of its
    own.
    """

    _instead = Instead(
        data="a network is called on data. If labels of optax.multi_transform are a network, "
        "pass them as a function, lambda _: labels, since optax calls whatever can be called"
    )

    _asked: ClassVar = {"output_pairs": "it is .pairs(data)"}

    @abc.abstractmethod
    def __call__(self, data: GatedData) -> Mapping[str, Float[Array, "n width"]]:
        """Return output node -> predictions (n, |v|)."""

    @abc.abstractmethod
    def validate(self, data: GatedData | Schedule) -> None:
        """Raise `ValueError` unless the data fit this model."""

    @abc.abstractmethod
    def prepare(self, data: GatedData | PackedData) -> GatedData | PackedData:
        """Check data and arrange them for repeated evaluation."""

    @abc.abstractmethod
    def pairs(self, data: GatedData | PackedData) -> Pairs:
        """Return (prediction, target, weight) arrays that together hold every example once.

        Shapes (..., row, width), (..., row, width), (..., row). `mse` and `cross_entropy` are sums
        over them; rows that only pad have weight 0.
        """


def pairs_by_node(outputs: Mapping[str, Array], data: GatedData) -> Pairs:
    """`AbstractModel.pairs` of predictions by output node."""
    check_gated_data(data)
    return [(outputs[name], y, data.weights) for name, y in data.targets.items()]


def predicted_pairs(model: PyTree, data: GatedData | PackedData) -> Pairs:
    """What losses read: of any model that can be called on data."""
    if isinstance(model, AbstractModel):
        return model.pairs(data)
    if isinstance(data, PackedData):
        raise ValueError(
            f"{type(model).__name__} cannot read PackedData, which are made for a GatedNetwork; "
            "pass the GatedData themselves."
        )
    return pairs_by_node(model(check_gated_data(data)), data)
