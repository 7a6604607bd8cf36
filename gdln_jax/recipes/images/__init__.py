"""N Fig. 7-10: real images, transformed: transfer from trained to untrained routes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gdln_jax.recipes._core.declare import RecipeOptions, option, statistical
from gdln_jax.recipes._core.recipe import Recipe

_FRACTIONS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 0.8)
# N Table 1, `images.PAPER`; its 1000 epochs are `simulate.count`'s.
PAPER = {
    "batch_size": 8,
    "learning_rate": 1e-4,
    "momentum": 0.9,
    "width": 128,
    "seeds": 10,
    "train_images": 60_000,
    "test_images": 10_000,
    "gains": (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001),
}


@dataclass(frozen=True)
class Options(RecipeOptions):
    """Options of the recipe; the defaults show on 2 cores what N's values show (`PAPER`)."""

    dataset: Literal["digits", "mnist", "cifar10"] = option("digits", "base images")
    data_dir: Path | None = option(None, "folder of the files of mnist and cifar10")
    features: Literal["auto", "pixels", "conv"] = option(
        "auto", "pixels, or a frozen encoder that is trained here (auto: for cifar10)"
    )
    encoder_steps: int = option(1000, "steps of the encoder's training", least=1)
    kind: Literal["permutation", "rotation"] = option("permutation", "input transformations")
    outputs: Literal["random", "lexicographic"] = option(
        "random", "label permutations; lexicographic ones agree on most labels"
    )
    train_images: int = option(10_000, "at most so many images to train on", least=1)
    test_images: int = option(1000, "at most so many images to test on", least=1)
    domains: tuple[int, ...] = option((10, 20), "numbers of domains M", least=2)
    fractions: tuple[float, ...] = option(_FRACTIONS, "K/M", above=0, most=1)
    seeds: int = option(2, "networks per cell", least=1)
    seed: int = option(0, "seed of the first network")
    width: int = option(64, "hidden units", least=1)
    gain: float = option(0.1, "gain of Xavier weights", above=0)
    slope: float = option(1.0, "slope of the leaky ReLU; 1: linear, N Fig. 9: 0.01")
    bias: bool = option(True, "biases in all layers")
    gains: tuple[float, ...] = option((10.0, 3.0, 1.0, 0.3, 0.1, 0.03), "last panel", above=0)
    gain_fraction: float = option(0.5, "K/M of the last panel", above=0)
    loss: Literal["mse", "cross_entropy"] = option("mse", "loss")
    batch_size: int = option(8, "images of a step", least=1)
    momentum: float = option(0.9, "of SGD")
    batches: Literal["same", "different"] = option("same", "images of the domains in a step")
    learning_rate: float = option(0.05, "for M = 10, grows as M^0.65, kept stable", above=0)
    steps: int = option(6000, "for M = 10, grows as M^0.35", least=1)
    gain_steps: int = option(20_000, "steps of the last panel", least=1)
    over: Literal["mean", "sum"] = option("mean", "loss of the domains of a step")
    evaluations: int = option(1, "evaluations of all routes per network", least=1)
    stop_at: float | None = option(None, "accuracy at which an evaluation stops the training")
    patience: int | None = option(None, "evaluations without progress before it stops")
    checkpoint: Path | None = option(None, "folder of states; the same call resumes from there")
    preset: Literal["small", "paper"] = option("small", "paper: N's values; weeks on a CPU")

    def validate(self) -> None:
        """Put the paper's values where an option has its default; refuse what has no files."""
        for name, value in PAPER.items() if self.preset == "paper" else ():
            if getattr(self, name) == getattr(type(self), name):
                object.__setattr__(self, name, value)
        if self.dataset != "digits" and self.data_dir is None:
            raise ValueError(f"{self.dataset} is read from files: set data_dir")


GOOD_GAP = 0.6  # well below the threshold of the spectral gap near 0.7 (E11, E12)
_WORST = "trained routes, small gain: accuracy, worst median of a cell"
_RISING = "still rising after {gain_steps} steps: large weights need small steps"
_LAG = f"gap < {GOOD_GAP}: trained - untrained accuracy, median"
CRITERIA = (
    statistical("agreement", "label agreement of two output domains", 0, 0.2, "1/classes"),
    statistical("worst_digits", _WORST, 0.85, 1, "digits", needs="digits"),
    statistical("worst_others", _WORST, 0.25, 1, "other data sets", needs="others"),
    statistical("lag", _LAG, -1, 0.03, "below the threshold", detail="largest {largest:.3f}"),
    statistical("single", "K = 1: untrained accuracy, median", 0, 0.25, "chance is 0.1"),
    statistical("large", "largest gain: untrained accuracy, median", 0, 0.25, "chance is 0.1"),
    statistical("large_trained", "largest gain: trained accuracy, median", 0.35, 1, _RISING),
    statistical("rank", "rank correlation of untrained accuracy with the gap", -1, -0.6, "order"),
)
RECIPE = Recipe(
    package=__name__,
    order=160,
    figure="N Fig. 7-10",
    summary="Rotated or permuted digits, MNIST or CIFAR-10: transfer to untrained routes",
    claim="Zero-shot transfer on real images, at small initial weights only",
    standing="holds under conditions",
    proviso="below the threshold of sigma_2/sigma_1; CIFAR-10 without N's ResNet",
    errata=("E10", "E11", "E12"),
    options=Options,
    quick={
        "domains": (10,),
        "fractions": (0.1, 0.2, 0.4, 0.6),
        "seeds": 1,
        "gains": (10.0, 0.1),
        "gain_steps": 20_000,
        "steps": 5000,
    },
    criteria=CRITERIA,
)
