"""The count of docs/saddles.md: 20 random gated systems of two layers.

JAX_ENABLE_X64=1 python docs/saddle_count.py
"""

import numpy as np

import gdln_jax as gdln


def system(seed: int) -> tuple[gdln.Reduction, dict[str, float]]:
    """2 x 2 x 2 nodes of width 1, six examples, random edge gates; c in aligned coordinates."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    gates = (rng.random((6, 8)) < 0.6).astype(float)
    c = rng.uniform(0.5, 1.5, 8)
    edges = [(f"x{i}", f"h{j}") for i in (0, 1) for j in (0, 1)]
    edges += [(f"h{i}", f"y{j}") for i in (0, 1) for j in (0, 1)]
    names = [f"{a}->{b}" for a, b in edges]
    data = gdln.GatedData(
        {"x0": x[:, :1], "x1": x[:, 1:]},
        {"y0": y[:, :1], "y1": y[:, 1:]},
        edge_gates=dict(zip(names, gates.T, strict=True)),
    )
    graph = gdln.Graph(dict.fromkeys([f"{k}{i}" for k in "xhy" for i in (0, 1)], 1), edges)
    reduction = gdln.reduce(graph, data)
    sign = {k: float(u[0, 0] * v[0, 0]) for k, (u, v) in reduction.frames.items()}
    return reduction, {k: v * sign[k] for k, v in zip(names, c.tolist(), strict=True)}


def main() -> None:
    """Print one line a system."""
    for seed in range(20):
        try:
            found, refused = gdln.saddles(*system(seed)), ""
        except gdln.SaddleError as error:
            found, refused = error.staircase, error.reason
        laws = "; ".join(event.law() for event in found.events)
        print(f"{seed:2}  {laws}  {refused or ' '.join(found.flags)}", flush=True)


if __name__ == "__main__":
    main()
