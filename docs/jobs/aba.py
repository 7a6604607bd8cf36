"""Learn A, then B, then A again: what one network forgets, and what a pathway of its own keeps."""

import jax
import numpy as np

import gdln_jax as gdln

jax.config.update("jax_enable_x64", True)
x, y, shut = np.eye(4), gdln.tasks.hierarchy_features(values=(3, 2, 1)).T, np.zeros(4)
graph = gdln.Graph({"x": 4, "a": 9, "b": 9, "y": 7}, [(*"xa",), (*"xb",), (*"ay",), (*"by",)])
net = gdln.GatedNetwork.init(graph, gdln.init.normal(0.05), key=jax.random.key(0))
ts = np.linspace(0, 60, 601)  # 20 each


def job(name, gates_of_a, gates_of_b):
    a = gdln.GatedData({"x": x}, {"y": y}, gates_of_a)
    b = gdln.GatedData({"x": x}, {"y": y[::-1]}, gates_of_b)  # the same features, other items
    turns = gdln.Schedule([a, b], times=[20, 40], order=[0, 1, 0])
    loss = gdln.gradient_flow(net, turns, ts, measure=lambda net: gdln.mse(net, a)).measured
    first, again = np.argmax(loss < 0.5) / 10, np.argmax(loss[400:] < 0.5) / 10
    print(f"{name}: A at t = {first}, loss on A after B {loss[400]:.3f}, A again within {again}")


job("one network", {}, {})
job("a pathway each", {"b": shut}, {"a": shut})
