"""`reduce_width`: from a wide network and its data to the small one."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gdln_jax._checks import check_choice, check_integer, check_positive, is_concrete
from gdln_jax._data.boundary import check_gated_data
from gdln_jax._data.gated import GatedData
from gdln_jax._data.packed import PackedData
from gdln_jax._data.packing import in_blocks, pack
from gdln_jax._network.edges import check_untied
from gdln_jax._network.gated import GatedNetwork, check_network
from gdln_jax._width.closure import Closure, Limits, close
from gdln_jax._width.examples import TOLERANCES, Table, look
from gdln_jax._width.reduction import WidthReduction
from gdln_jax._width.small import padded, small_data, small_graph, small_net, stacked_data


def reduce_width(
    net: GatedNetwork,
    data: GatedData | PackedData,
    *,
    outputs: str = "complete",
    tol: float | None = None,
    on_open: str = "raise",
    rounds: int | None = None,
    max_size: int | None = None,
) -> WidthReduction:
    """Find the small network that trains exactly like a wide one, from any initial weights.

    Activities and errors of a whole run stay in spaces that are the smallest to hold the inputs
    and outputs and to be mapped into one another by the initial weights. Their sizes depend on the
    data and on the kind of weights, not on the width: with orthogonal hidden weights of equal
    width, at most the number of input and output dimensions; with one hidden layer the same for
    any weights. Gaussian hidden weights fill the network: then the reduction is open.

    Args:
        net: the wide network; a stack of seeds has its axes in front, and all are padded with zeros
            to the largest size.
        data: all examples that will be used, with weight 0 those that are not trained.
        outputs: "complete": exact for any loss of the outputs, minibatches and the tangent kernel.
            "span": smaller if targets span few directions, exact for `gdln.mse` only. With full
            batches of noisy targets pass `data.compress()`.
        tol: singular values below this share of the largest count as 0; default 1e-10, for float32
            weights 1e-5.
        on_open: "raise", "truncate" after `rounds` or before some size exceeds `max_size`, or
            "fill": continue up to the full width.
        rounds: for "truncate": how often directions are sent through the network (0: inputs and
            outputs alone).
        max_size: for "truncate": whole rounds while all sizes are at most this.

    Returns:
        A `WidthReduction`.

    Raises:
        OpenClosureError: that names the edge or the cycle, if no smaller network is exact.
        ValueError: for data that do not fit, under jit, or for options that contradict.

    Host code in float64. Each direction is multiplied once with each weight matrix at its node,
    O(r N^2) for r directions; memory is one block of rows beside the network.
    """
    check_network(net)
    check_untied(net.graph, "reduce_width", "train the wide network itself")
    options = _options(net, outputs, tol, on_open, rounds, max_size)
    if not isinstance(data, PackedData):
        check_gated_data(data)
    if not is_concrete((net, data)):
        raise ValueError(
            "reduce_width looks at weights and data and cannot run under jit, grad or vmap; call "
            "it outside, and pass a stack of networks for several seeds."
        )
    pack(net.graph, data)  # checks that they fit
    data = in_blocks(data)
    seen, tables = look(net.graph, data, options.limits.tol)
    batch = net.stacks[0].shape[:-3]
    found = [
        close(net.graph, weights, seen, options.span, options.limits)
        for weights in _members(net, batch)
    ]

    def refine() -> WidthReduction:
        return reduce_width(
            net,
            data,
            outputs=outputs,
            tol=tol,
            on_open="truncate",
            rounds=max(one.rounds for one in found) + 1,
        )

    if options.limits.max_size is not None and len({one.rounds for one in found}) > 1:
        # The same number of rounds for all seeds, so that one round more is one for each.
        return reduce_width(
            net,
            data,
            outputs=outputs,
            tol=tol,
            on_open="truncate",
            rounds=min(one.rounds for one in found if not one.closed),
        )
    return _assembled(net, data, tables, found, options.span, refine)


class _Options(NamedTuple):
    span: bool
    limits: Limits


def _options(
    net: GatedNetwork,
    outputs: str,
    tol: float | None,
    on_open: str,
    rounds: int | None,
    max_size: int | None,
) -> _Options:
    check_choice(outputs, ("complete", "span"), "outputs")
    check_choice(on_open, ("raise", "truncate", "fill"), "on_open")
    given = rounds is not None or max_size is not None
    if (on_open == "truncate") != given:
        raise ValueError(
            "on_open='truncate' needs rounds= or max_size=, and they are for on_open='truncate' "
            f"only; got on_open={on_open!r}, rounds={rounds!r}, max_size={max_size!r}."
        )
    if rounds is not None:
        rounds = check_integer(rounds, "rounds", minimum=0)
    if max_size is not None:
        max_size = check_integer(max_size, "max_size", minimum=1)
    if tol is not None and check_positive(tol, "tol") >= 1:
        raise ValueError(f"tol is {tol}; it is a share and must be below 1.")
    default = TOLERANCES[np.dtype(net.stacks[0].dtype)]
    limits = Limits(default if tol is None else float(tol), rounds, max_size, on_open == "raise")
    return _Options(outputs == "span", limits)


def _members(net: GatedNetwork, batch: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    """Edge -> weights of each seed, views of the stacks where these lie on the host."""
    stacks = [np.asarray(stack).reshape(-1, *stack.shape[-3:]) for stack in net.stacks]
    slots = net.graph.slot
    count = int(np.prod(batch))
    return [
        {name: stacks[bundle][i, place] for name, (bundle, place) in slots.items()}
        for i in range(count)
    ]


def _assembled(
    net: GatedNetwork,
    data: GatedData | PackedData,
    tables: Sequence[Table],
    found: Sequence[Closure],
    span: bool,
    refine: Callable[[], WidthReduction],
) -> WidthReduction:
    batch, dtype = net.stacks[0].shape[:-3], np.dtype(net.stacks[0].dtype)
    sizes = {name: [one.frames[name].shape[1] for one in found] for name in net.graph.nodes}
    graph = small_graph(net.graph, sizes)
    frames = padded(graph, [one.frames for one in found])
    small = small_net(graph, [one.weights for one in found], dtype)

    def shaped(leaf: Array) -> Array:
        return leaf.reshape(*batch, *leaf.shape[1:])

    def in_frames_of(i: int) -> GatedData | PackedData:
        own = {name: columns[i] for name, columns in frames.columns.items()}
        return small_data(net.graph, graph, data, tables, own, span)

    if span and batch:
        every = [in_frames_of(i) for i in range(len(found))]
        new = jax.tree.map(shaped, stacked_data(every))
    else:
        new = in_frames_of(0)
    leaks = {name: max(one.leaks[name] for one in found) for name in found[0].leaks}
    return WidthReduction(
        net=jax.tree.map(shaped, small),
        data=new,
        sizes={k: v.reshape(batch) if batch else int(v[0]) for k, v in frames.sizes.items()},
        frames={k: shaped(jnp.asarray(v, dtype)) for k, v in frames.columns.items()},
        closed=all(one.closed for one in found),
        leak=max(leaks.values(), default=0.0),
        leaks=leaks,
        rounds=max(one.rounds for one in found),
        expected=_agreed([one.expected for one in found]),
        outputs="span" if span else "complete",
        _source=data,
        _wide=net,
        _refine=refine,
    )


def _agreed(every: Sequence[Mapping[str, int | None]]) -> dict[str, int | None]:
    """Sizes by formula where all seeds have the same one."""
    return {k: v if all(one[k] == v for one in every) else None for k, v in every[0].items()}
