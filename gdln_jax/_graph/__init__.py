"""Architecture graphs, their paths and their drawing in notebooks."""

from gdln_jax._graph.graph import Bundle as Bundle
from gdln_jax._graph.graph import Edge as Edge
from gdln_jax._graph.graph import Graph as Graph
from gdln_jax._graph.graph import Home as Home
from gdln_jax._graph.graph import NodeClass as NodeClass
from gdln_jax._graph.graph import Store as Store
from gdln_jax._graph.naming import check_trainable as check_trainable
from gdln_jax._graph.ties import Use as Use
