"""The closure of wide chains: time and memory of `reduce_width` with float32 weights."""

import time
import tracemalloc

import jax.numpy as jnp
import numpy as np

import gdln_jax as gdln
from benchmarks import measuring
from benchmarks.table import Row

_GIB = 2**30


def measure(quick: bool) -> list[Row]:
    """One and two hidden layers of 16384 units; each reduction once, after a small one."""
    width = 64 if quick else 16384
    data = gdln.GatedData({"x": 2 * np.eye(4)}, {"y": gdln.tasks.hierarchy_features().T})
    first = gdln.Graph.chain([4, 32, 32, 7])
    gdln.reduce_width(gdln.GatedNetwork.from_stacks(first, _orthogonal(first)), data)  # imports
    rows = []
    for hidden in ((width,), (width, width)):
        graph = gdln.Graph.chain([4, *hidden, 7])
        net = gdln.GatedNetwork.from_stacks(graph, _orthogonal(graph))
        tracemalloc.start()
        busy = time.process_time()
        taken, r = measuring.seconds(lambda net=net: gdln.reduce_width(net, data))
        busy = time.process_time() - busy
        peak = tracemalloc.get_traced_memory()[1] / _GIB
        tracemalloc.stop()
        weights = sum(stack.nbytes for stack in net.stacks) / _GIB
        note = (
            f"sizes {[r.sizes[name] for name in graph.hidden]}, leak {r.leak:.1e}, {busy:.2g} s of "
            f"processor time; {peak:.2g} GiB beside the weights, which are {weights:.2g} GiB."
        )
        sizes = "-".join(str(n) for n in graph.nodes.values())
        rows.append(
            Row("reduce_width, float32 weights", sizes, "", None, taken, limit=10.0, note=note)
        )
        del net, r
    return rows


def _orthogonal(graph: gdln.Graph) -> tuple:
    """Float32 weights; a square one is a product of eight reflections, which needs no QR."""
    rng = np.random.default_rng(0)
    stacks = []
    for bundle in graph.bundles:
        rows, columns = bundle.shape
        if rows == columns:
            w = np.eye(rows, dtype=np.float32)
            for _ in range(8):
                v = rng.standard_normal((rows, 1)).astype(np.float32)
                v /= np.linalg.norm(v)
                moved = v.T @ w
                for start in range(0, rows, 1024):
                    w[start : start + 1024] -= 2 * v[start : start + 1024] * moved
        else:
            tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
            q = np.linalg.qr(tall)[0].astype(np.float32)
            w = q if rows >= columns else q.T
        stacks.append(jnp.asarray(0.5 * w[None]))
    return tuple(stacks)
