"""N A.2: the quick size passes, and every check fails when what it watches is wrong."""

import numpy as np
import pytest
from recipe_runs import check_sound, failed, quick

from gdln_jax.recipes import OptionError, reproduce
from gdln_jax.recipes.contextual import simulate


@pytest.fixture(scope="module")
def result():
    return quick("contextual")


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_can_be_read(result):
    check_sound(result)
    assert len(result.checks) == 11
    assert "[0.5000 0.5000]" in result.verdict
    assert result.data["gated_weights_samples"].dims == ("seed", "time", "context", "feature")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "gated"])
def test_every_check_can_fail(result, kind):
    for variable, amount, check in (
        ("weights_flow", 1e-9, "flow"),
        ("weights_population", 1e-5, "limit"),
        ("loss_population", 1e-9, "loss"),
        ("best", 1e-5, "fit"),
        ("loss_samples", 1e-9, "moments"),
    ):
        change = {f"{kind}_{variable}": lambda values, amount=amount: values + amount}
        assert failed(result, **change) == {f"{kind}_{check}"}


@pytest.mark.slow
def test_another_mean_loss_fails(result):
    assert "mean" in failed(result, linear_examples=lambda losses: losses + 0.02)


def test_variance_of_the_loss_on_the_square():
    # <(x1 - x2)^4> = 2 <x^4> + 6 <x^2>^2 = 2/5 + 6/9, by quadrature here.
    x, w = np.polynomial.legendre.leggauss(5)
    q = (x[:, None] - x) ** 2 / 8
    mean, square = (np.sum(w[:, None] * w * v) / 4 for v in (q, q**2))
    np.testing.assert_allclose([mean, square - mean**2], [1 / 12, simulate.VARIANCE])


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["contextual_classification"]
    assert simulate.REFERENCE_WEIGHTS["linear"] == [known["linear_W"]]
    assert simulate.REFERENCE_WEIGHTS["gated"] == known["gated_W"]
    assert known["linear_loss"] == "1/12"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 4}, "samples must be a number at least 8, got 4"),
        ({"std": 0.0}, "std must be a number above 0, got 0.0"),
        ({"learning_rate": 1e-6}, "100000000 steps"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("contextual", **change)
