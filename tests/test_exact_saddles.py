"""`exact.chain_time`, `chain_blow_up`, `fusion_times` (theory#chains, theory#fusion).

Known answers: shared reference values by independent code (flows by DOP853 at rtol 1e-11), and
`chain_mode_time`, the balanced case.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax import exact

# s = 1.3, d = 0.7: c, the time from 0.1 c to half of the product, T*.
CHAINS = [
    ([1, -0.6], 3.245932206389, np.inf),
    ([1, 0.6, 1.7], 6.586892436145, 0.71219112863),
    ([1, -0.6, 1.7], 13.15032147094, 1.3685339829),
    ([1, -0.6, 1.7, 0.8], 146.1731985802, 1.46326102907),
    ([1, 0.9, -0.5, 1.2, 0.8], 1791.422749006, None),
]


@pytest.mark.parametrize(("c", "half", "blow_up"), CHAINS)
def test_chains_of_any_depth_and_sign(c, half, blow_up):
    c = np.array(c)
    time = exact.chain_time(1.3 / 0.7 / 2, 1.3, 0.7, 0.1 * c)
    np.testing.assert_allclose(time, half, rtol=2e-12)
    if blow_up is not None:
        np.testing.assert_allclose(exact.chain_blow_up(1.3, c), blow_up, rtol=2e-11)


def test_one_wrong_sign_doubles_the_time():
    right, wrong = (
        exact.chain_time(1.3 / 1.4, 1.3, 0.7, np.array([0.1, x, 0.17])) for x in (0.06, -0.06)
    )
    assert 1.9 < float(wrong / right) < 2.1


PRODUCTS = np.array([0.0001, 0.01, 0.3, 0.9, 0.999, 1.0, 1.2])


@pytest.mark.slow  # compiles four programs
def test_the_balanced_chain_is_chain_mode_time():
    """On both sides of the start, up to the limit and beyond, also from above."""
    for b0 in (0.2, 1.1):
        known = exact.chain_mode_time(PRODUCTS, 1.0, 1.0, b0**4, 4, 3.0)
        found = exact.chain_time(PRODUCTS, 1.0, 1.0, np.full(4, b0), tau=3.0)
        np.testing.assert_allclose(found, known, rtol=1e-9)
        # One class that occurs four times, shared by as many edges, is the same chain.
        once = exact.chain_time(
            PRODUCTS, 1.0, 1.0, np.array([b0]), multiplicities=[4], sizes=[4], tau=3.0
        )
        np.testing.assert_allclose(once, known, rtol=1e-9)


@pytest.mark.parametrize(("m", "known"), [(3, 1.78232241832), (4, 2.13677978658)])
def test_routing_blows_up_as_its_arc_tangent(m, known):
    s, c1, c2 = 1.2, 0.9, 1.1
    root = np.sqrt(m * c1**2 - c2**2)
    closed = m / (s * root) * (np.pi / 2 - np.arctan(c2 / root))
    np.testing.assert_allclose(closed, known, rtol=1e-9)
    apart = exact.chain_blow_up(s, np.array([c1, c2, c1]), sizes=[m, 1, m])
    merged = exact.chain_blow_up(s, np.array([c1, c2]), multiplicities=[2, 1], sizes=[2 * m, 1])
    np.testing.assert_allclose([apart, merged], closed, rtol=1e-12)
    # Classes without their sizes are another system.
    np.testing.assert_allclose(
        exact.chain_blow_up(s, np.array([c1, c2, c1])), 0.8629069124, rtol=1e-9
    )


def test_a_product_that_cannot_turn_is_never_learned():
    """Two equal smallest strengths, or one that counts twice, with a product of the wrong sign."""
    stuck = np.array([0.6, -0.6, 1.7])
    assert exact.chain_blow_up(1.3, stuck) == np.inf
    assert exact.chain_time(0.5, 1.3, 0.7, stuck) == np.inf
    twice = np.array([0.6, -1.0])
    assert exact.chain_blow_up(1.3, twice, multiplicities=[2, 1]) == np.inf
    # On its way to 0 the product still passes smaller values.
    assert 0 < float(exact.chain_time(-0.1, 1.3, 0.7, stuck)) < 10


@pytest.mark.slow  # compiles derivatives
def test_derivatives_by_every_argument():

    def time(x):
        return exact.chain_time(x[0], x[1], x[2], x[3:6], tau=x[6])

    x = jnp.array([0.9, 1.3, 0.7, 0.1, -0.06, 0.17, 2.0])
    steps = 1e-6 * jnp.eye(len(x))
    slopes = (jax.vmap(time)(x + steps) - jax.vmap(time)(x - steps)) / 2e-6
    np.testing.assert_allclose(jax.grad(time)(x), slopes, rtol=1e-6)


def test_what_chains_refuse():
    with pytest.raises(ValueError, match=r"multiplicities is \[1\]; give 3 numbers"):
        exact.chain_time(0.5, 1.0, 1.0, np.ones(3), multiplicities=[1])
    with pytest.raises(ValueError, match="sizes is"):
        exact.chain_blow_up(1.0, np.ones(3), sizes=[1, 0, 1])
    assert np.isnan(exact.chain_time(0.5, 1.0, -1.0, np.ones(3) / 10))
    assert np.isnan(exact.chain_time(np.nan, 1.0, 1.0, np.ones(3) / 10))


LATE = np.array([[1, 0.9], [0.8, 1.1]])
DEEP = np.array([[1, 1, 1], [1, 1.2, 0.8]])
# (s_B, d_AB), depth, fusion, c -> t_A and t_B - t_A over their powers of eps, or ln(1/eps).
FUSION = [
    (0.6, 0.3, 2, 2, 1.0, 1.0, 4 / 3),
    (0.6, 0.9, 2, 2, 1.0, 1.0, np.nan),  # flips, and starts balanced: never learned
    (0.6, 0.9, 2, 2, LATE, 1.0, 16 / 3),
    (0.3, 0.8, 2, 2, LATE, 1.0, 2.6),  # 1.4 without the correction
    (0.6, 0.3, 3, 2, 1.0, 0.81196037287, 4 / 3),
    (0.6, 0.3, 3, 3, 1.0, 1.0, 4 / 3),
    (0.6, 0.3, 4, 3, 1.0, 0.38994708558, 4 / 3),
    (0.6, 0.9, 3, 3, DEEP, 1.0, 12.811477238),
]


@pytest.mark.parametrize(("s_b", "d_ab", "depth", "fusion", "c", "first", "second"), FUSION)
def test_fusion(s_b, d_ab, depth, fusion, c, first, second):
    eps = 0.01
    fold = -np.log(eps)
    units = (
        fold if depth == 2 else eps ** (2 - depth),
        fold if fusion == 2 else eps ** (2 - fusion),
    )
    t_a, t_b = exact.fusion_times(eps, 1.0, s_b, 1.0, 1.0, d_ab, depth=depth, fusion=fusion, c=c)
    np.testing.assert_allclose(t_a / units[0], first, rtol=1e-10)
    np.testing.assert_allclose((t_b - t_a) / units[1], second, rtol=1e-10)
    # The names of the modalities are of no account.
    other = c if np.ndim(c) == 0 else c[::-1]
    swapped = exact.fusion_times(eps, s_b, 1.0, 1.0, 1.0, d_ab, depth=depth, fusion=fusion, c=other)
    np.testing.assert_array_equal(swapped, (t_b, t_a))


@pytest.mark.parametrize(
    ("d_ab", "c", "zeta", "right", "wrong"),
    [
        (0.9, [1, 1.2, 0.8], [2.479021, 2.566233, 2.405317], 12.8114772, 10.811),
        (0.3, [1.0, 1.0, 1.0], [2.5, 2.5, 2.5], 4 / 3, 10 / 3),
    ],
)
def test_the_second_stage_starts_from_zeta_not_from_c(d_ab, c, zeta, right, wrong):
    """B's strengths have grown to zeta(T*) while A blew up: 1/c - 0.6 T* = 1/2.5 with T* = 1."""
    left = 0.6 - d_ab
    # zeta is given to seven digits, and the smallest strength has the wrong sign.
    np.testing.assert_allclose(exact.chain_blow_up(left, np.array(zeta)), right, rtol=1e-5)
    np.testing.assert_allclose(exact.chain_blow_up(left, np.array(c)), wrong, rtol=5e-5)
    start = np.array([np.ones(3), c])
    times = exact.fusion_times(0.01, 1.0, 0.6, 1.0, 1.0, d_ab, depth=3, fusion=3, c=start)
    np.testing.assert_allclose((times[1] - times[0]) * 0.01, right, rtol=1e-7)


def test_early_fusion_learns_both_at_once():
    times = exact.fusion_times(0.01, 1.0, 0.6, 1.0, 1.0, 0.3, depth=2, fusion=1)
    np.testing.assert_allclose(times, 0.8574929257 * np.log(100) * np.ones(2), rtol=1e-9)


def test_what_fusion_refuses():
    with pytest.raises(ValueError, match="fusion is 1 of 3 layers; give 2 to 3"):
        exact.fusion_times(0.01, 1.0, 0.6, 1.0, 1.0, 0.3, depth=3, fusion=1)
    with pytest.raises(ValueError, match=r"c has shape \(2, 2\)"):
        exact.fusion_times(0.01, 1.0, 0.6, 1.0, 1.0, 0.3, depth=3, fusion=2, c=LATE)
