"""Which gate patterns a rectified unit can realise on given inputs (H Lemma 4.1 and E22)."""

import numpy as np
from jaxtyping import Int
from scipy.optimize import linprog

from gdln_jax._checks import is_concrete
from gdln_jax._checks.types import ArrayLike


def implementable_patterns(
    inputs: ArrayLike, *, bias: bool = False, limit: int = 100_000
) -> Int[np.ndarray, "pattern example"]:
    r"""Return every gate pattern that some unit has on `inputs`, as sorted rows of 0 and 1.

    A pattern is implementable if weights w exist with w.x > 0 on the examples that are on and
    w.x <= 0 on those that are off (a pre-activation of exactly 0 is off). The all-off pattern is
    always among them (w = 0), the all-on pattern wherever it is possible.

    Found by linear programming (HiGHS): w.x >= 1 on, w.x <= 0 off, since w can be scaled.
    Examples are added one by one to the patterns that are still possible; one of the two
    continuations of a pattern is seen from its present w, only the other needs a program. Cost:
    one small program per pattern and example, about 1 ms each; the number of patterns is at most
    of order n^rank (Cover 1965), not 2^n.

    H Lemma 4.1 says that on one-hot items and contexts a unit gates on contexts alone or on one
    data point. Only the pattern of exclusive-or is excluded (E22): the implementable patterns,
    as 0/1 matrices (context, item), are those without an XoR minor (lonesum matrices): 14 of 16
    for 2 x 2, 46 for 2 x 3, 230 for 3 x 3. Weights (1, -0.25, 0.5, -0.5) give on, on, on, off.

    Args:
        inputs: array (example, |x|).
        bias: whether the unit has a bias.
        limit: refuse more than this number of patterns.

    Raises:
        ValueError: for inputs that are not a finite matrix, or more than `limit` patterns.
    """
    if not is_concrete(inputs):
        raise ValueError("implementable_patterns() looks at values; call it outside of jit.")
    x = np.asarray(inputs, float)
    if x.ndim != 2 or 0 in x.shape or not np.all(np.isfinite(x)):
        raise ValueError(f"inputs has shape {x.shape}; expected finite numbers (example, |x|).")
    if bias:
        x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    # Rows of length 1, so that the margin of 1 in the programs means the same for all examples.
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    x = x / np.where(norms > 0, norms, 1)
    found = [(np.zeros(0, int), np.zeros(x.shape[1]))]
    for k in range(len(x)):
        grown = []
        for pattern, w in found:
            for on in (0, 1):
                longer = np.append(pattern, on)
                seen = _agrees(x[: k + 1] @ w, longer)
                witness = w if seen else _weights(x[: k + 1], longer)
                if witness is not None:
                    grown.append((longer, witness))
        found = grown
        if len(found) > limit:
            raise ValueError(
                f"more than limit = {limit} patterns are possible on the first {k + 1} of "
                f"{len(x)} examples; raise limit or pass fewer examples."
            )
    patterns = np.stack([pattern for pattern, _ in found])
    return patterns[np.lexsort(patterns.T[::-1])]


def _agrees(z: np.ndarray, pattern: np.ndarray) -> bool:
    """Return whether pre-activations show the pattern beyond the solver's tolerance of 1e-7."""
    return bool(np.all(np.where(pattern == 1, z >= 0.5, z <= 1e-6)))


def _weights(x: np.ndarray, pattern: np.ndarray) -> np.ndarray | None:
    """Return weights that realise a pattern, or None if there are none."""
    sign = np.where(pattern == 1, -1.0, 1.0)
    result = linprog(
        np.zeros(x.shape[1]),
        A_ub=sign[:, None] * x,
        b_ub=np.where(pattern == 1, -1.0, 0.0),
        bounds=(None, None),
        method="highs",
    )
    if result.status == 0:
        return result.x
    if result.status == 2:  # infeasible
        return None
    raise RuntimeError(f"the linear program for pattern {pattern} failed: {result.message}")
