"""The gates that small units have come to, and the shares in which they would enter the output."""

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from gdln_jax._checks import Result, check_integer, check_positive
from gdln_jax.relu._descent import Active, descend
from gdln_jax.relu._utility import Utility

# Units of the output are at a kink up to this share of |w| |x|.
_AT_KINK = 0.003
# Amplitude of the largest gate when the race between gates starts: small beside what is learned.
_RACE = 1e-4


class DormantGates(Result, eqx.Module):
    """Distinct gates of small units, those of the largest rate first; made by `DormantFlow.gates`.

    - `patterns` (gate, n): 1 where its units are on, 0 elsewhere, on a kink too.
    - `kinks` (gate, n) bool.
    - `rates` (gate,): a unit of the gate grows as e^{rate t}.
    - `counts` (gate,): share of the units that have come to it; the rest have come to none yet.
    - `weights` (gate,): c_k, mean over all units of r^2/2 e^{-2 rate t} of those on gate k. N units
      of scale std enter as one of amplitude N std^2 c_k e^{2 rate t}. On XoR their sum is kappa
      (E14).
    - `index` (unit,): each unit's gate, -1 if none.
    - `directions` (gate, x + y): (w, a) of its units, of length 1 together.
    """

    patterns: Int[np.ndarray, "gate n"]
    kinks: Bool[np.ndarray, "gate n"]
    rates: Float[np.ndarray, " gate"]
    counts: Float[np.ndarray, " gate"]
    weights: Float[np.ndarray, " gate"]
    index: Int[np.ndarray, " unit"]
    directions: Float[np.ndarray, "gate parameter"]
    utility: Utility = eqx.field(static=True)

    @property
    def first_drop(self) -> float:
        """T = t/ln(1/std) of the loss's first drop: one over the largest rate."""
        return float(1 / self.rates[0])

    def shares(self, std: float | int, *, units: int | None = None) -> Float[np.ndarray, " gate"]:
        """Return the shares of the gates in the output's power when the first drop is over.

        Gates of unequal rates are rivals at any finite `std`: each enters as one unit of the
        amplitude that its units have together, and they race until the loss rests.

        Args:
            std: standard deviation of the network's initial weights.
            units: width of the network. Default: the number of units of the flow.
        """
        std = check_positive(std, "std")
        count = len(self.index) if units is None else check_integer(units, "units", minimum=1)
        log = np.log(count * self.weights) + 2 * np.log(std)
        t = np.min((np.log(_RACE) - log) / (2 * self.rates))
        size = np.exp((log + 2 * self.rates * t) / 2)
        examples = self.utility.examples._replace(y=self.utility.residual)
        width = examples.x.shape[1]
        start = np.sqrt(2) * size[:, None] * self.directions
        end = descend(examples, Active(start[:, :width], start[:, width:])).units
        return end.power(examples)

    def __repr__(self) -> str:
        lines = [f"DormantGates({len(self.rates)} gates of {len(self.index)} units"]
        for gate, rate, count in zip(self.patterns, self.rates, self.counts, strict=True):
            shown = "".join(map(str, gate)) if len(gate) <= 60 else f"{gate.sum()} of {len(gate)}"
            lines.append(f"  {shown}  rate {rate:.6g}, {count:.0%} of the units")
        return "\n".join(lines) + ")"


def kink_level(
    w: Float[np.ndarray, "unit x"], x: Float[np.ndarray, "n x"]
) -> Float[np.ndarray, "unit n"]:
    """Pre-activations up to which a unit of the output counts as at the kink."""
    return _AT_KINK * np.linalg.norm(w, axis=1)[:, None] * np.linalg.norm(x, axis=1)


def gates_of(
    utility: Utility,
    w: Float[np.ndarray, "unit x"],
    a: Float[np.ndarray, "unit y"],
    log_size: Float[np.ndarray, " unit"],
    kinks: Bool[np.ndarray, "unit n"],
    t: float,
) -> DormantGates:
    """Sort units by gate after a flow of time `t`."""
    on = (w @ utility.examples.x.T > 0) & ~kinks
    both, place = np.unique(np.concatenate([on, kinks], axis=1), axis=0, return_inverse=True)
    found = [utility.gate(*np.split(row, 2)) for row in both]
    gates = list({id(gate): gate for gate in found if gate is not None}.values())
    if not gates:
        raise ValueError(f"after t = {t:g} no unit has come to a gate; let them flow for longer.")
    gates.sort(key=lambda gate: -gate.rate)
    rank = {id(gate): k for k, gate in enumerate(gates)}
    index = np.array([-1 if gate is None else rank[id(gate)] for gate in found])[place.ravel()]
    directions = np.stack([gate.modes.directions[0] for gate in gates])
    rates = np.array([gate.rate for gate in gates])
    along = np.sum(np.concatenate([w, a], axis=1) * directions[index], axis=1)
    size = along**2 / 2 * np.exp(2 * (log_size - rates[index] * t))
    member = index[:, None] == np.arange(len(gates))
    return DormantGates(
        np.stack([gate.on for gate in gates]).astype(int),
        np.stack([gate.kink for gate in gates]),
        rates,
        member.mean(axis=0),
        (member * size[:, None]).mean(axis=0),
        index,
        directions,
        utility,
    )
