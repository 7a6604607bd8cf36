"""The data whose gates are predicted, and how the networks beside them are trained."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gdln_jax import GatedData, tasks


@dataclass(frozen=True)
class Case:
    """A task: its data, the number of stages to calculate, and how many drops are checked.

    `trained`: drops to train for; those beyond `checked` are reported. `units`: of the prediction;
    networks have 100. `step`: a step of lr makes T late by `step` x lr, BEYOND 11.6.
    """

    name: str
    make: Callable[[], GatedData]
    stages: int
    checked: int
    trained: int
    units: int = 100
    step: float = 0.5


def _plain(task: tasks.Task) -> GatedData:
    assert isinstance(task.data, GatedData)
    return GatedData(task.data.inputs, task.data.targets)


def xor() -> GatedData:
    """N Fig. 3."""
    return _plain(tasks.xor(gating="none"))


def margin(delta: float) -> GatedData:
    """H Fig. 2 at one margin."""
    return _plain(tasks.margin_xor(delta, gating="none"))


def contexts(count: int, structures: str = "same") -> GatedData:
    """H Fig. 3 and 5."""
    return _plain(tasks.semantic_contexts(count, pathways="none", structures=structures))


def gauss(n: int, d: int, o: int, seed: int) -> GatedData:
    """Gaussian inputs and targets."""
    r = np.random.default_rng(seed)
    return GatedData({"x": r.normal(size=(n, d))}, {"y": r.normal(size=(n, o))})


def random_labels() -> GatedData:
    """100 Gaussian inputs with labels that are nothing but chance."""
    r = np.random.default_rng(0)
    return GatedData({"x": r.normal(size=(100, 8))}, {"y": r.choice([-1.0, 1.0], (100, 1))})


def digits() -> GatedData:
    """The first 100 of scikit-learn's digits, one-hot targets."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return GatedData({"x": np.asarray(images)[:100] / 16}, {"y": np.eye(10)[labels[:100]]})


CASES = {
    case.name: case
    for case in (
        Case("XoR", xor, 2, 1, 1, step=0.75),
        Case("margin 0.5", lambda: margin(0.5), 2, 1, 1),
        Case("margin 0.8", lambda: margin(0.8), 2, 0, 1),
        Case("margin 1.2", lambda: margin(1.2), 2, 1, 1),
        Case("contexts 3", lambda: contexts(3), 3, 3, 3),
        Case("contexts 4", lambda: contexts(4), 2, 1, 2),
        Case("contexts 5", lambda: contexts(5), 3, 2, 2),
        Case("contexts 6", lambda: contexts(6), 2, 2, 2),
        Case("contexts different", lambda: contexts(3, "different"), 2, 2, 2),
        Case("Gauss 20x3->1 seed 1", lambda: gauss(20, 3, 1, 1), 2, 2, 2),
        Case("Gauss 20x3->1 seed 6", lambda: gauss(20, 3, 1, 6), 2, 2, 2),
        Case("Gauss 20x3->1 seed 0", lambda: gauss(20, 3, 1, 0), 2, 1, 2),
        Case("Gauss 30x4->2 seed 1", lambda: gauss(30, 4, 2, 1), 1, 0, 1),
        Case("random labels", random_labels, 1, 0, 1, 60),
        Case("digits", digits, 1, 0, 1, 60),
    )
}


@dataclass(frozen=True)
class Imitated:
    """A task of which a gated network is built twice: from predicted and from clustered gates.

    `held`: whether the predicted gates' gap is checked, or only measured.
    """

    make: Callable[[], GatedData]
    k: int
    std: float
    rate: float
    steps: int
    scales: str = "units"
    threshold: float = 0.0
    held: bool = True


_H = 7.142857e-6  # H's scale for the contexts
IMITATED = {
    "XoR": Imitated(xor, 4, 2e-4, 0.04, 900, "turning", 0.1),
    "margin 0.5": Imitated(lambda: margin(0.5), 4, 1e-5, 0.04, 900),
    "margin 1.2": Imitated(lambda: margin(1.2), 2, 1e-5, 0.04, 700),
    "contexts 3": Imitated(lambda: contexts(3), 4, _H, 0.02, 2500),
    "contexts 4": Imitated(lambda: contexts(4), 5, _H, 0.02, 2500, held=False),
    "contexts different": Imitated(lambda: contexts(3, "different"), 4, _H, 0.02, 1800),
    "Gauss 20x3->1 seed 1": Imitated(lambda: gauss(20, 3, 1, 1), 2, 1e-5, 0.02, 5500),
}
