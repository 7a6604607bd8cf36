"""Rich or lazy, by width: the same task and size of weights, and how far the kernel moves."""

import jax
import numpy as np
import optax

import gdln_jax as gdln
from gdln_jax.measures import Richness, richness

jax.config.update("jax_enable_x64", True)
data = gdln.GatedData({"x": np.eye(4)}, {"y": gdln.tasks.hierarchy_features(values=(3, 2, 1)).T})


def job(key, width, seed):
    graph = gdln.Graph.chain([4, width, 7])
    net = gdln.GatedNetwork.init(graph, gdln.init.normal(0.04), key=key)
    run = gdln.train(net, data, optimizer=optax.sgd(0.04), steps=1500, save_every=1500)
    return richness(run, data)


axes = {"width": [16, 512, 8192], "seed": range(3)}
found = gdln.sweep(job, axes, key=jax.random.key(0), static=["width"]).median("seed")
print(*map(Richness, *(found[name].values for name in Richness._fields)), sep="\n")
