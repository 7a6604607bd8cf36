"""Design: the initial strengths with which all modes are half learned at the times wished for."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import root

import gdln_jax as gdln

jax.config.update("jax_enable_x64", True)
task = gdln.tasks.hierarchy(values=(3, 2, 1), width=8)
reduction = gdln.reduce(task.graph, task.data)
wished = np.array([2.0, 3.0, 5.0, 5.0])
half = 0.5 * reduction.strengths["x", "y"] / reduction.variances[("x", "y"), ("x", "y")]


def too_late(log_b0):
    reached = reduction.time_to(half, jnp.exp(log_b0), t1=50.0, path=["x->h1", "h1->y"])
    return reached.time - wished


found = root(too_late, np.full(4, np.log(0.1)), jac=jax.jacrev(too_late))
print("initial strengths", np.exp(found.x).round(4), "times", wished + too_late(found.x))
