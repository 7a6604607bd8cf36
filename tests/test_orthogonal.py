"""Random orthogonal matrices: JAX's own draws, in a batch of any size, on a machine of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gdln_jax._linalg import random_orthogonal


@pytest.mark.parametrize("shape", [(5, 5), (6, 2), (1, 1)])
def test_the_draws_of_jax_and_orthonormal(key, shape):
    found = random_orthogonal(key, *shape)
    np.testing.assert_array_equal(found, jax.random.orthogonal(key, shape[0], m=shape[1]))
    np.testing.assert_allclose(found.T @ found, np.eye(shape[1]), atol=1e-14)


def test_one_draw_per_key_in_a_batch(key):
    keys = jax.random.split(key, 3)
    together = jax.vmap(lambda k: random_orthogonal(k, 4))(keys)
    np.testing.assert_array_equal(together, jnp.stack([random_orthogonal(k, 4) for k in keys]))


@pytest.mark.slow
def test_a_large_batch_of_networks_does_not_stand_still(plain_python):
    """With jaxlib's own batches 256 networks of three layers never end on two cores."""
    snippet = """
import jax
import gdln_jax as gdln
graph = gdln.Graph.chain([64, 64, 63, 62])
start = lambda key: gdln.GatedNetwork.init(graph, gdln.init.orthogonal(), key=key)
nets = jax.jit(jax.vmap(start))(jax.random.split(jax.random.key(0), 256))
print(len(jax.block_until_ready(nets.weights["h2->y"])))
"""
    done = plain_python(snippet)
    assert done.stdout.split() == ["256"], done.stderr
