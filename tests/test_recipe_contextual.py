"""N A.2: the quick size passes, and every check fails when what it watches is wrong."""

from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError, contextual, reproduce


@pytest.fixture(scope="module")
def quick():
    options = contextual.Options(**contextual.QUICK)  # type: ignore[arg-type]
    return options, contextual.simulate(options)


def failed(options, runs):
    checks, _ = contextual.check(options, runs)
    return {check.name for check in checks if not check.passed}


@pytest.mark.slow
def test_all_checks_pass_and_the_picture_is_drawn(quick, monkeypatch):
    options, runs = quick
    monkeypatch.setattr(contextual, "simulate", lambda *_: runs)
    result = contextual.run(options)
    assert result.passed, [check for check in result.checks if not check.passed]
    assert len(result.checks) == 11
    assert "[0.5000 0.5000]" in result.verdict
    assert isinstance(result.figure(), Figure)  # type: ignore[operator]
    assert result.data["gated_weights_samples"].dims == ("seed", "time", "context", "feature")
    assert all("long_name" in result.data[name].attrs for name in result.data.data_vars)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "gated"])
def test_every_check_can_fail(quick, kind):
    options, runs = quick

    def names(**change):
        return failed(options, runs | {kind: replace(runs[kind], **change)})

    one = runs[kind]
    moved = eqx.tree_at(lambda f: f.measured, one.flow, one.flow.measured + 1e-9)
    assert names(flow=moved) == {f"{kind}: flow - closed form, total weights"}

    def shifted(values, name, amount):
        return values | {name: values[name] + amount}

    assert names(maps=shifted(one.maps, "population", 1e-5)) == {
        f"{kind}, population: total weights - reference, random starts"
    }
    assert names(losses=shifted(one.losses, "population", 1e-9)) == {
        f"{kind}, population: final loss, worst"
    }
    assert names(best=one.best + 1e-5) == {
        f"{kind}, samples: total weights - least squares of the sample"
    }
    assert names(losses=shifted(one.losses, "samples", 1e-9)) == {
        f"{kind}, samples: loss by second moments - by examples"
    }


@pytest.mark.slow
def test_another_mean_loss_fails(quick):
    options, runs = quick
    other = replace(runs["linear"], examples=runs["linear"].examples + 0.02)
    assert "linear, samples: mean loss - 1/12, in standard errors" in failed(
        options, runs | {"linear": other}
    )


def test_variance_of_the_loss_on_the_square():
    # <(x1 - x2)^4> = 2 <x^4> + 6 <x^2>^2 = 2/5 + 6/9, by quadrature here.
    x, w = np.polynomial.legendre.leggauss(5)
    q = (x[:, None] - x) ** 2 / 8
    mean, square = (np.sum(w[:, None] * w * v) / 4 for v in (q, q**2))
    np.testing.assert_allclose([mean, square - mean**2], [1 / 12, contextual._VARIANCE])


def test_reference_values_are_those_of_the_file(reference):
    known = reference["exact"]["contextual_classification"]
    assert contextual.REFERENCE_WEIGHTS["linear"] == [known["linear_W"]]
    assert contextual.REFERENCE_WEIGHTS["gated"] == known["gated_W"]
    assert known["linear_loss"] == "1/12"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 4}, "samples must be at least 8"),
        ({"std": 0.0}, "std must be a number above 0"),
        ({"learning_rate": 1e-6}, "100000000 steps"),
    ],
)
def test_what_cannot_be_done_is_refused(change, message):
    with pytest.raises(OptionError, match=message):
        reproduce("contextual", **change)
