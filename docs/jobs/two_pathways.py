"""A graph of your own: which of two pathways learns what is common to two contexts?"""

import numpy as np

import gdln_jax as gdln
from gdln_jax import plot

graph = gdln.Graph(
    {"x": 3, "shared": 16, "own": 16, "y": 3},
    [("x", "shared"), ("shared", "y"), ("x", "own"), ("own", "y")],
)
# Six examples: three items in each of two contexts; the pathway "own" is open in the second only.
targets = np.concatenate([np.diag([3.0, 2.0, 1.0]), np.diag([3.0, 2.0, 4.0])])
data = gdln.GatedData(
    {"x": np.tile(np.eye(3), (2, 1))}, {"y": targets}, {"own": [0.0, 0, 0, 1, 1, 1]}
)
reduction = gdln.reduce(graph, data)
run = gdln.gradient_flow(reduction.embed(0.05), data, np.linspace(0, 40, 201))
pathways = run.pathways(reduction)
print(reduction, pathways)
print("learned by each pathway:", {name: b[-1].round(2) for name, b in pathways.items()})
plot.modes(run, reduction).figure.savefig("two_pathways.png", dpi=200)
