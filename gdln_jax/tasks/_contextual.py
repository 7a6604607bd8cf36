"""Nonlinear contextual classification (N A.2): the context says which input is the answer."""

import jax
import numpy as np

from gdln_jax._checks import check_choice, check_integer
from gdln_jax._checks.types import PRNGKeyArray
from gdln_jax._data.gated import GatedData
from gdln_jax.tasks._task import Meta, Task, parallel_graph, random_key


def contextual_classification(
    num_samples: int | None = None,
    *,
    gating: str = "context",
    context_input: bool = False,
    width: int = 16,
    key: PRNGKeyArray | None = None,
) -> Task:
    r"""Report x_1 in context 1 and x_2 in context 2, for x uniform on the square [-1, 1]^2.

    Nodes `x` (2), `h1`, `h2`, `y` (1); each context has probability 1/2.

    Args:
        num_samples: None for the population, as eight pseudo-examples with its exact first and
            second moments, (+-sqrt(2/3), 0) and (0, +-sqrt(2/3)) in either context: exact for
            squared error and (gated) linear networks, but no sample of a square for a ReLU network
            or another loss. A number: that many samples, alternating between the contexts.
        gating: `"context"`: pathway c is on in context c. `"none"`: one pathway `h1`, always on.
        context_input: append the context to `x` as a one-hot vector; without it only gates tell the
            contexts apart. For ReLU networks.
        width: units of each pathway.
        key: for the samples.

    `meta`: `context` (n,) in {0, 1}, and values of the population (for samples too):
    `initial_loss` = 1/6, `limit`, the total weights (pathway, 2) on x_1 and x_2 that a small
    start converges to, `final_loss`, and `s`, `d` of the mode that learns. Gated: [1 0] and
    [0 1], 0, s = d = 1/6 per pathway (N Eq. 26-29). Ungated: [1/2 1/2], 1/12, s = sqrt(2)/6,
    d = 1/3 (N Eq. 24-25). N's condition of one V per input node fails for the gated network,
    whose two pathways need different input directions first; Sigma^x is isotropic, so any V
    serves (E4).

    Raises:
        ValueError: for fewer than 1 sample, another gating, or samples without a key.
    """
    gating = check_choice(gating, ("context", "none"), "gating")
    width = check_integer(width, "width", minimum=1)
    if num_samples is None:
        square = np.sqrt(2 / 3) * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        x, context = np.tile(square, (2, 1)), np.repeat([0, 1], 4)
    else:
        num_samples = check_integer(num_samples, "num_samples", minimum=1)
        key = random_key(key, "samples are")
        x = np.asarray(jax.random.uniform(key, (num_samples, 2), minval=-1, maxval=1))
        context = np.arange(num_samples) % 2
    y = np.take_along_axis(x, context[:, None], axis=1)
    one_hot = np.eye(2)[context]
    if context_input:
        x = np.concatenate([x, one_hot], axis=1)
    hidden = ["h1", "h2"] if gating == "context" else ["h1"]
    graph = parallel_graph(x.shape[1], hidden, width, 1)
    gates = dict(zip(hidden, one_hot.T, strict=True)) if gating == "context" else {}
    data = GatedData({"x": x}, {"y": y}, gates)
    meta = {"gating": gating, "context": context, **_population_facts(gating)}
    return Task(graph, data, "contextual_classification", meta)


def _population_facts(gating: str) -> Meta:
    if gating == "context":
        limit, facts = np.eye(2), {"final_loss": 0.0, "s": 1 / 6, "d": 1 / 6}
    else:
        limit = np.array([[0.5, 0.5]])
        facts = {"final_loss": 1 / 12, "s": np.sqrt(2) / 6, "d": 1 / 3}
    return {"initial_loss": 1 / 6, "limit": limit, **facts}
