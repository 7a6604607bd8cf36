"""What clustering finds in gates that have nothing in common: the scale on which scores are read.

The pattern of each unit is shuffled over examples, which keeps on how many of them it is on, and
its power; what units share is lost.
"""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from gdln_jax._checks import Result, check_integer
from gdln_jax.relu._gates import GateModules, Snapshots, find_gates, gate_rows

# Moments of a long history that are shuffled; clustering their patterns gives the same scores.
_MOMENTS = 10


class GateNull(Result, eqx.Module):
    """Scores of `discover_gates` beside those of shuffled gates; made by `null_gates`.

    Attributes:
        explained, agreement: of the gates themselves, on the moments that were shuffled.
        null_explained, null_agreement: (shuffle,), of the shuffled ones.
    """

    explained: float
    agreement: float
    null_explained: Float[np.ndarray, " shuffle"]
    null_agreement: Float[np.ndarray, " shuffle"]

    @property
    def above(self) -> bool:
        """Whether both scores exceed those of every shuffle."""
        return bool(
            self.explained > self.null_explained.max()
            and self.agreement > self.null_agreement.max()
        )

    def __repr__(self) -> str:
        def shown(value: float, null: np.ndarray) -> str:
            return f"{value:.0%} (shuffled {null.mean():.0%}, at most {null.max():.0%})"

        return (
            f"GateNull(explained {shown(self.explained, self.null_explained)}, agreement "
            f"{shown(self.agreement, self.null_agreement)}: "
            f"{'above' if self.above else 'not above'} all {len(self.null_explained)} shuffles)"
        )


def null_gates(snapshots: Snapshots, *, k: int, shuffles: int = 20, seed: int = 0) -> GateNull:
    """Score the clustering of gates, and of gates of which each unit's is shuffled over examples.

    Units keep their power, and on how many examples they are on; a unit's shuffle is the same at
    all times. With few examples or many modules shuffled gates score high, too: only the
    excess over their score is informative.

    Args:
        snapshots: as for `discover_gates`; of a leading axis of more than 10 moments every n-th is
            taken.
        k: number of modules.
        shuffles: number of them.
        seed: of the shuffles and of the clustering.

    Raises:
        ValueError: as `discover_gates`.

    Cost of `shuffles` clusterings of at most 10 moments.
    """
    shuffles = check_integer(shuffles, "shuffles", minimum=1)
    kept = jax.tree.map(np.asarray, snapshots)
    if kept.on.ndim > 2:
        counted = kept.power.reshape(len(kept.power), -1).any(axis=1)
        moments = np.flatnonzero(counted)[:: -(-max(int(counted.sum()), 1) // _MOMENTS)]
        kept = jax.tree.map(lambda a: a[moments], kept)
    on, near = kept.on, kept.near
    found = find_gates(kept, k=k, seed=seed)
    rng = np.random.default_rng(seed)
    scores = []
    for _ in range(shuffles):
        order = np.argsort(rng.random(on.shape[-2:]), axis=-1)
        order = np.broadcast_to(order, on.shape)
        shuffled = eqx.tree_at(
            lambda s: (s.on, s.near),
            kept,
            (
                np.take_along_axis(on, order, -1),
                None if near is None else np.take_along_axis(near, order, -1),
            ),
            is_leaf=lambda leaf: leaf is None,
        )
        scores.append(_scores(shuffled, k, seed))
    explained, agreement = np.array(scores).T
    return GateNull(found.explained, found.agreement, explained, agreement)


def _scores(snapshots: Snapshots, k: int, seed: int) -> tuple[float, float]:
    """Explained and agreement; fewer kinds than k are all explained."""
    rows = gate_rows(snapshots, weight="output_power", drop_dead=True)
    found: GateModules = find_gates(snapshots, k=min(k, rows.count), seed=seed)
    return found.explained, found.agreement
