"""From a table of items and their features to the order in which a network tells them apart."""

import io

import jax
import numpy as np
import pandas as pd

import gdln_jax as gdln
from gdln_jax import plot

table = """item,grows,moves,roots,flies,swims,bark,petals,sings,yellow,pink,needles
canary,1,1,0,1,0,0,0,1,1,0,0
robin,1,1,0,1,0,0,0,1,0,0,0
salmon,1,1,0,0,1,0,0,0,0,1,0
oak,1,0,1,0,0,1,0,0,0,0,0
pine,1,0,1,0,0,1,0,0,0,0,1
rose,1,0,1,0,0,0,1,0,0,1,0"""
features = pd.read_csv(io.StringIO(table), index_col="item")
data = gdln.GatedData({"x": np.eye(len(features))}, {"y": features})
graph = gdln.Graph.chain([len(features), 32, features.shape[1]])
net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.01), key=jax.random.key(0))
run = gdln.gradient_flow(net, data, np.linspace(0, 80, 401))
plot.differentiation(run, data)[0].figure.savefig("differentiation.png", dpi=200)
