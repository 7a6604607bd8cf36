"""Named types of arguments. In `help()` a union prints all its members, and an alias its name."""

from collections.abc import Callable, Mapping, Sequence

import jax.typing
import jaxtyping
from jaxtyping import Array
from typing_extensions import TypeAliasType

ArrayLike = TypeAliasType("ArrayLike", jax.typing.ArrayLike)
"""A number or an array of NumPy or JAX."""

Numbers = jax.typing.ArrayLike
"""The same as a union, for shapes: `Float[Numbers, "n x"]`."""

Rows = TypeAliasType("Rows", ArrayLike | Sequence)
"""Numbers as an array, or as (nested) lists."""

Times = TypeAliasType("Times", ArrayLike | Sequence[float | int | Array])
"""Times, increasing."""

PerEdge = TypeAliasType("PerEdge", ArrayLike | Mapping[str, ArrayLike])
"""One value, or a mapping edge -> value."""

PRNGKeyArray = TypeAliasType("PRNGKeyArray", jaxtyping.PRNGKeyArray)
"""One JAX random key."""

Loss = TypeAliasType("Loss", Callable[..., Array])
"""A function of model and data that returns one number."""

Curve = TypeAliasType("Curve", Callable[..., Array] | None)
"""A function of time, or of a state, that returns numbers; or None."""

Measure = TypeAliasType("Measure", Callable[..., jaxtyping.PyTree] | None)
"""A function of the model, of which `measure=` keeps what it returns; None measures nothing."""

Model = TypeAliasType("Model", jaxtyping.PyTree)
"""Any pytree with floating-point arrays."""

Tolerance = TypeAliasType("Tolerance", ArrayLike | None)
"""Of an adaptive step; None takes the default."""
