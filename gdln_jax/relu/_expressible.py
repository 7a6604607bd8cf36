"""What gated linear pathways can compute at a checkpoint, whatever the training was.

A gated linear network with gates g_m(i) computes f(x_i) = sum_m g_m(i) A_m x_i (biases: x_i with a
1). The A_m nearest to given outputs are a least-squares problem, so that one checkpoint is enough;
how the outputs were learned is not asked.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from gdln_jax._checks import Suggesting, dataset
from gdln_jax._data.gated import GatedData
from gdln_jax.relu._gates import GateModules, Snapshots, find_gates, gate_rows, mean_square
from gdln_jax.relu._gates_choice import smallest_good
from gdln_jax.relu._gates_network import check_one_layer, ends, gate_values

_RANK = 1e-9
# Gaps below this are rounding.
_ZERO = 1e-12


class Expressible(NamedTuple):
    """How near gated linear networks come to a checkpoint's outputs; made by `expressible`.

    - `ks`, `gap` (k,): numbers of modules, and the mean squared difference of outputs as a share of
      their mean square.
    - `shuffled` (k,): the smallest gap that gates shuffled over examples come to.
    - `k`: the smallest number that is good enough, or None, and `reason`.
    """

    ks: Int[np.ndarray, " k"]
    gap: Float[np.ndarray, " k"]
    shuffled: Float[np.ndarray, " k"]
    k: int | None
    reason: str

    to_xarray = dataset
    __getattr__ = Suggesting.__getattr__

    @property
    def decides(self) -> bool:
        """Whether the outputs depend on the gates: shuffled ones do not come as near."""
        at = list(self.ks).index(self.k) if self.k is not None else len(self.ks) - 1
        return bool(self.shuffled[at] > 2 * self.gap[at] + _RANK)


def expressible(
    snapshots: Snapshots,
    data: GatedData,
    *,
    ks: tuple[int, ...],
    limit: float = 0.05,
    shuffles: int = 5,
    seed: int = 0,
) -> tuple[Expressible, tuple[GateModules, ...]]:
    """Find how many modules it takes to compute the last outputs in `snapshots`.

    The rule is that of `choose_k`, on the gap of the nearest gated linear network. Host code; cost
    of a least-squares problem of n examples and k (|x| + 1) features each.

    Raises:
        ValueError: as `discover_gates` and `build_gated`, and for outputs that are 0.
    """
    check_one_layer(snapshots.kind)
    source, _ = ends(data)
    outputs = np.asarray(snapshots.output, float)
    outputs = outputs.reshape(-1, *outputs.shape[-2:])[-1]
    possible = gate_rows(snapshots, weight="output_power", drop_dead=True).count
    tried = [k for k in ks if k <= possible]
    found = tuple(find_gates(snapshots, k=k, seed=seed) for k in tried)
    x, bias = np.asarray(data.inputs[source], float), snapshots.kind.bias
    energy = mean_square(outputs)
    rng = np.random.default_rng(seed)

    def gap(gates: np.ndarray) -> float:
        missed = np.mean((_nearest(gates, x, outputs, bias) - outputs) ** 2) / energy
        return float(missed) if missed > _ZERO else 0.0

    gaps = np.array([gap(gate_values(one)) for one in found])
    shuffled = [
        min(gap(rng.permuted(gate_values(one), axis=1)) for _ in range(shuffles)) for one in found
    ]
    k, reason = smallest_good(tried, gaps[:, None], limit)
    return Expressible(np.array(tried), gaps, np.array(shuffled), k, reason), found


def _nearest(gates: np.ndarray, x: np.ndarray, outputs: np.ndarray, bias: bool) -> np.ndarray:
    one = np.ones((len(x), 1))
    seen = np.append(x, one, axis=1) if bias else x
    features = np.concatenate([gate[:, None] * seen for gate in gates] + [one] * bias, axis=1)
    left, size, _ = np.linalg.svd(features, full_matrices=False)
    left = left[:, size > _RANK * size.max(initial=0)]
    return left @ (left.T @ outputs)
