"""Frames: modes pass through every hidden node that is wide enough for those that come by."""

import jax.numpy as jnp
import numpy as np

import gdln_jax as gdln


def test_a_narrow_node_carries_the_mode_of_its_own_pathway():
    """z -> h1 (one unit) carries the weaker of the modes that x -> h0 carries both of."""
    graph = gdln.Graph(
        {"x": 2, "z": 1, "h0": 3, "h1": 1, "y": 3},
        [("x", "h0"), ("z", "h1"), ("h0", "y"), ("h1", "y")],
    )
    # Three examples: mode 1 and 2 through x, mode 2 also through z, together with x and alone.
    x = np.sqrt(3) * np.array([[1, 0], [0, 1], [0, 0]])
    z = np.array([[0.0], [0.5], [0.5]])
    y = np.array([[3.0, 0, 0], [0, 2, 0], [0, 0.7, 0]])
    data = gdln.GatedData({"x": x, "z": z}, {"y": y})
    reduction = gdln.reduce(graph, data)
    assert reduction.residual < 1e-12
    through_z = np.abs(np.asarray(reduction.embed(0.3).weights["z->h1"]))
    np.testing.assert_allclose(through_z, 0.3, rtol=1e-12)
    ts = jnp.linspace(0.0, 90.0, 4)
    reduced = reduction.solve(0.1, ts)
    full = gdln.gradient_flow(reduction.embed(0.1), data, ts)
    np.testing.assert_allclose(reduced.losses, full.losses, atol=1e-9)
    # With the narrow pathway asleep the loss could not fall below what x alone can do.
    assert float(reduced.losses[-1]) < 0.1 * 0.7**2 / 2 / 3


def test_a_bottleneck_lets_the_strongest_modes_pass():
    graph = gdln.Graph.chain([4, 2, 7])
    features = gdln.tasks.hierarchy_features()
    data = gdln.GatedData({"x": np.eye(4)}, {"y": features.T})
    reduction = gdln.reduce(graph, data)
    assert reduction.residual < 1e-12
    weights = reduction.embed(1.0).weights
    s = np.linalg.svd(np.asarray(weights["h1->y"] @ weights["x->h1"]), compute_uv=False)
    np.testing.assert_allclose(s, [1, 1, 0, 0], atol=1e-12)
    passed = np.asarray(weights["h1->y"] @ weights["x->h1"])
    sigma = features / 4
    # The two strongest singular values of Sigma^yx: sqrt(185)/4 and sqrt(41)/4.
    np.testing.assert_allclose(np.sum(passed * sigma), (185**0.5 + 41**0.5) / 4, rtol=1e-12)
