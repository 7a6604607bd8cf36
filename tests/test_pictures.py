"""Pictures of runs in one call: what they take, what they show, what they refuse."""

import itertools
from typing import Any

import drawn_text
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_runs
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import Bbox
from small_runs import ITEMS, START, STEPS, TS

import gdln_jax as gdln
from gdln_jax import plot

# Times and places as numbers, before they are drawn; which artists are labels.


@pytest.fixture(scope="module")
def system():
    graph, data = small_runs.two_pathways()
    return data, gdln.reduce(graph, data)


@pytest.fixture(scope="module")
def runs(system):
    data, reduction = system
    net = reduction.embed(START)
    return {
        "flow": gdln.gradient_flow(net, data, TS, keep_models=True),
        "solve": reduction.solve(START, TS),
        "quotient": reduction.quotient(START).solve(TS),
        "train": gdln.train(net, data, **STEPS),
        "batch": small_runs.drawn(reduction, data),
        "sweep": small_runs.swept(reduction, data),
    }


KINDS = ("flow", "solve", "quotient", "train", "batch", "sweep")


def labels(ax: Axes) -> Any:
    """The names at the ends of curves or beside points."""
    kinds = ("EndLabels", "PointLabels")
    (found,) = [a for a in ax.get_children() if type(a).__name__ in kinds]
    return found


def drawn(ax: Axes) -> Figure:
    """The figure, laid out."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    return figure


def curve(line: Line2D) -> np.ndarray:
    """The values of a line (time, 2)."""
    return np.asarray(line.get_xydata(), float)


def assert_apart(ax: Axes) -> None:
    """Drawn, no name covers another and all are inside of the figure."""
    figure = drawn(ax).bbox
    boxes = [text.get_window_extent() for text in labels(ax).texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(box.x0 >= figure.x0 and box.x1 <= figure.x1 + 1 for box in boxes)


def theory_lines(ax: Axes):
    return [line for line in ax.lines if line.get_linestyle() == "--"]


# ---------------------------------------------------------------- losses
@pytest.mark.parametrize("kind", KINDS)
def test_learning_takes_every_run(runs, kind):
    run = runs[kind]
    ax = plot.learning(run)
    losses = np.asarray(run["losses"] if kind == "sweep" else run.losses).reshape(-1, 5)
    (median,) = [line for line in ax.lines if line.get_linewidth() > 1]
    np.testing.assert_allclose(curve(median)[:, 1], np.nanmedian(losses, axis=0))
    steps = kind in ("train", "batch", "sweep")
    assert ax.get_xlabel() == ("step" if steps else "time $t/\\tau$")
    np.testing.assert_array_equal(curve(median)[:, 0], [0, 2, 4, 6, 8] if steps else TS)
    assert len(ax.collections) == (len(losses) > 1)  # the band


def test_theory_is_black_and_dashed_over_a_wider_pale_line(system, runs):
    _, reduction = system
    ax = plot.figure(plot.SINGLE, 2).add_subplot()
    assert plot.learning(runs["flow"], runs["solve"], ax=ax) is ax
    (dashed,) = theory_lines(ax)
    (solid,) = [line for line in ax.lines if line is not dashed]
    assert to_hex(dashed.get_color()) == "#000000"
    assert solid.get_linewidth() > 2 * dashed.get_linewidth()
    assert dashed.get_zorder() > solid.get_zorder()
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.texts] == ["network", "theory"]
    # A reduction is solved from the start of the run: here the very same curve.
    (own,) = theory_lines(plot.learning(runs["flow"], reduction))
    np.testing.assert_allclose(curve(own)[:, 1], runs["solve"].losses, rtol=1e-9)


def test_several_runs_are_named_at_their_ends(runs):
    t = np.linspace(0, 6, 5)
    ax = plot.learning(
        {"flow": runs["flow"], "reduced": runs["solve"], "by hand": (t, 1 / (1 + t))}
    )
    assert [text.get_text() for text in labels(ax).texts] == ["flow", "reduced", "by hand"]
    assert len({to_hex(text.get_color()) for text in labels(ax).texts}) == 3
    assert_apart(ax)  # two of them end at one point


def test_a_run_that_failed_leaves_gaps_and_no_warning(runs):
    failed = jax.tree.map(lambda leaf: leaf[2:], runs["batch"])
    ax = plot.learning({"failed": failed})
    drawn(ax)
    assert np.isnan(curve(ax.lines[-1])[-1, 1])


# ---------------------------------------------------------------- modes
@pytest.mark.parametrize("kind", KINDS)
def test_modes_take_every_run(system, runs, kind):
    _, reduction = system
    run = runs[kind]
    ax = plot.modes(run, reduction=reduction, pathway="x->h2->y")
    known = reduction.pathways(run)["x->h2->y"]
    medians = [line for line in ax.lines if line.get_linewidth() > 1]
    for mode, line in enumerate(medians):
        strengths = np.asarray(known[..., mode]).reshape(-1, 5)
        np.testing.assert_allclose(curve(line)[:, 1], np.nanmedian(strengths, axis=0))
    assert [text.get_text() for text in labels(ax).texts] == ["mode 1", "mode 2"]
    assert ax.get_xlabel() == ("step" if kind in ("train", "batch", "sweep") else "time $t/\\tau$")
    assert_apart(ax)


def test_modes_of_several_pathways_and_their_theory(system, runs):
    _, reduction = system
    ax = plot.modes(runs["flow"], reduction)
    assert [text.get_text() for text in labels(ax).texts] == ["mode 1", "mode 2"] * 2
    legend = ax.get_legend()
    assert legend is not None
    columns = ["network", "x→h1→y", "theory", "x→h2→y"]  # two rows
    assert [text.get_text() for text in legend.texts] == columns
    dashed = theory_lines(ax)
    known = runs["solve"].pathways()
    for k, (h, m) in enumerate(itertools.product(("h1", "h2"), (0, 1))):
        np.testing.assert_allclose(curve(dashed[k])[:, 1], known[f"x->{h}->y"][:, m], atol=1e-8)
        assert to_hex(dashed[k].get_color()) == "#000000"
    colours = [to_hex(text.get_color()) for text in labels(ax).texts]
    assert colours == [plot.COLOURS[c].lower() for c in ("trained", "trained", *["untrained"] * 2)]


def test_long_names_of_pathways_leave_the_axes_most_of_the_figure():
    grown = np.linspace(0, 1, 5)[:, None] * np.array([3.0, 2.0, 1.0, 0.5])
    names = ("odor->hippocampus->report", "odor->report", "sound->hippocampus->report")
    strengths = np.arange(1, 4)[:, None, None] * grown
    paths = tuple(tuple(name.split("->")) for name in names)
    path = gdln.Pathways(jnp.arange(5), jnp.asarray(strengths), None, names, paths, "solved")
    ax = plot.modes(path)
    figure = drawn(ax)
    assert drawn_text.faults(figure) == []
    assert_apart(ax)
    assert ax.bbox.width > 0.6 * figure.bbox.width
    assert ax.bbox.height > 120
    legend = ax.get_legend()
    assert legend is not None
    for line, text, name, colour in zip(
        legend.get_lines(), legend.texts, names, labels(ax).texts[::4], strict=True
    ):
        assert text.get_text() == name.replace("->", "→")
        assert to_hex(line.get_color()) == to_hex(colour.get_color())
    assert plot.modes(path, labels=[str(k) for k in range(12)]).get_legend() is None


def test_modes_look_at_clocks_before_they_read_networks(system, runs, monkeypatch):
    def read(*_):
        raise AssertionError("networks were read")

    monkeypatch.setattr(gdln.Reduction, "pathways", read)
    for one, other in (("train", "solve"), ("flow", "train")):
        with pytest.raises(ValueError, match="counts steps and the"):
            plot.modes(runs[one], runs[other], reduction=system[1])


def test_modes_of_arrays_with_names_of_their_own():
    t = np.arange(5)
    strengths = np.outer(t, [3.0, 2.0, 1.0])
    ax = plot.modes((t, strengths), (t, strengths), labels=["animal", "bird", "canary"])
    assert [text.get_text() for text in labels(ax).texts] == ["animal", "bird", "canary"]
    assert len(theory_lines(ax)) == 3
    assert ax.get_xlabel() == "step"


# ---------------------------------------------------------------- similarities
@pytest.mark.parametrize("kind", KINDS)
def test_similarity_takes_every_run(system, runs, kind):
    data, reduction = system
    run = runs[kind] if kind != "batch" else jax.tree.map(lambda leaf: leaf[:2], runs[kind])
    own = None if kind in ("flow", "train", "batch") else reduction
    ax = plot.similarity(run, data, node="h1", reduction=own)
    last = jax.tree.map(lambda s: s[..., -1, :, :, :], reduction.networks(run))
    flat = jax.tree.map(lambda s: s.reshape(-1, *s.shape[-3:]), last)
    h = np.asarray(jax.vmap(lambda net: net.activity(data)["h1"])(flat))
    (image,) = ax.images
    np.testing.assert_allclose(
        np.asarray(image.get_array()), np.mean(h @ h.swapaxes(1, 2), axis=0), atol=1e-12
    )
    assert [text.get_text() for text in ax.get_yticklabels()] == list(ITEMS)


def test_similarity_takes_both_forms():
    matrix = np.eye(4)
    ax = plot.figure(plot.SINGLE, 2).add_subplot()
    assert plot.similarity(ax, matrix) is ax
    other = plot.similarity(matrix, num_domains=2)
    for drawn_on in (ax, other):
        np.testing.assert_array_equal(np.asarray(drawn_on.images[0].get_array()), matrix)
    assert other.get_xlabel() == "input domain"


# ---------------------------------------------------------------- differentiation
def tree_of_four(t):
    """Two pairs that part at t = 2, and the items of the first at t = 6; the others never do."""
    first = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    second = np.array([[0.0, 0.5], [0, -0.5], [0, 0], [0, 0]])
    grown = [1 / (1 + np.exp(-8 * (t - when))) for when in (2.0, 6.0)]
    return grown[0][:, None, None] * first + grown[1][:, None, None] * second


def test_differentiation_shows_map_tree_and_times():
    t = np.linspace(0, 8, 81)
    plane, tree = plot.differentiation((t, tree_of_four(t)), ITEMS)
    assert_apart(plane)
    assert [text.get_text() for text in labels(plane).texts] == list(ITEMS)
    assert {text.get_text() for text in labels(tree).texts} == {"2", "6"}
    assert np.sort(labels(tree).points[:, 0]) == pytest.approx([2.0, 6.0], abs=1e-6)
    assert {text.get_text() for text in tree.get_yticklabels()} == set(ITEMS)
    assert tree.get_xlabel() == "time $t/\\tau$"
    assert tree.get_xlim() == (0, 8)
    # Items come apart from one point: the mean is taken out at each time.
    assert all(abs(curve(line)[0, 0]) < 1e-6 for line in plane.lines[:4])


PLACES = ("kitchen", "bathroom", "garden", "garage")
PLACES_BY = tuple(f"{place} ({sense})" for sense in ("odor", "sound") for place in PLACES)


def places_out_of_order():
    """Steps, and eight places of which those smelt come apart before the groups they are in."""
    t = np.arange(0, 801, 10)
    first, second = np.tile([1.0, 1, -1, -1], 2), np.tile([1.0, -1, -1, 1], 2)
    size = np.repeat([[0.33, 0.1], [0.58, 0.25]], 4, axis=0)
    sides, smelt, heard = (1 / (1 + np.exp(-(t - when) / 15)) for when in (166, 77.5, 414))
    points = np.zeros((len(t), 8, 2))
    points[:, :, 0] = sides[:, None] * first * size[:, 0]
    points[:, :4, 1] = smelt[:, None] * (second * size[:, 1])[:4]
    points[:, 4:, 1] = heard[:, None] * (second * size[:, 1])[4:]
    return t, points


def places_at_one_point():
    """Times, and eight places in pairs at one point of the map."""
    t = np.linspace(0, 40, 81)
    tree = np.array([[3.0, 2, 0, 1, 0, 0, 0], [3, 2, 0, 0, 1, 0, 0]])
    tree = np.concatenate([tree, tree[:, [0, 2, 1, 5, 6, 3, 4]]])
    parts = [
        tree * (np.arange(7) == 0),
        tree * (np.isin(np.arange(7), [1, 2])),
        tree * (np.arange(7) > 2),
    ]
    smelt, heard = (
        sum(
            (1 / (1 + np.exp(-(t - when) / 0.4)))[:, None, None] * part
            for when, part in zip(times, parts, strict=True)
        )
        for times in ((2.0, 3.5, 5.1), (3.0, 11.4, 29.5))
    )
    return t, np.concatenate([smelt, heard * np.array([0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4])], axis=1)


def passed(line: np.ndarray, box: Bbox) -> bool:
    """Whether a line (n, 2) in pixels passes a box."""
    return any(Path(pair).intersects_bbox(box) for pair in itertools.pairwise(line))


@pytest.mark.parametrize("places", [places_out_of_order, places_at_one_point])
def test_names_and_times_stand_clear_of_points_and_branches(places):
    plane, tree = plot.differentiation(places(), PLACES_BY)
    figure = drawn(plane)
    assert drawn_text.faults(figure) == []
    point = figure.dpi / 72
    for ax in (plane, tree):
        assert_apart(ax)
        boxes = [text.get_window_extent().padded(-0.5 * point) for text in labels(ax).texts]
        dots = ax.transData.transform(labels(ax).points)
        for k, line in enumerate(labels(ax).lines):
            leader = np.asarray(line.get_xydata(), float)
            assert not any(passed(leader, box) for box in boxes)
            far = [dot for dot in dots if np.linalg.norm(dot - dots[k]) > 5 * point]
            assert not any(passed(leader, Bbox([dot, dot]).padded(point)) for dot in far)
        if ax is tree:
            branches = [tree.transData.transform(curve(line)) for line in tree.lines]
            assert not any(passed(one, box) for one in branches for box in boxes)


def test_the_tree_is_in_the_order_of_its_axis_and_times_are_where_they_are_written():
    t, points = places_out_of_order()
    _, tree = plot.differentiation((t, points), PLACES_BY)
    written = labels(tree)
    assert [float(text.get_text()) for text in written.texts] == pytest.approx(
        written.points[:, 0], rel=5e-3
    )
    times = np.sort(written.points[:, 0])
    dotted = [curve(line) for line in tree.lines if line.get_linestyle() == ":"]
    assert sorted(line[0, 0] for line in dotted) == pytest.approx(
        [77.5, 77.5, *times[3:5]], abs=0.1
    )
    assert all(line[0, 0] < line[1, 0] for line in dotted)
    # Solid branches lead from left to right only.
    assert all(
        curve(line)[0, 0] <= curve(line)[1, 0] for line in tree.lines if line.get_linestyle() == "-"
    )


@pytest.mark.parametrize("kind", ["flow", "train", "solve"])
def test_differentiation_of_runs(system, runs, kind):
    data, reduction = system
    axes = plot.figure(plot.DOUBLE, 2).subplots(1, 2)
    own = reduction if kind == "solve" else None
    found = plot.differentiation(runs[kind], data, node="y", reduction=own, ax=axes)
    assert found == list(axes)
    assert [text.get_text() for text in labels(axes[0]).texts] == list(ITEMS)
    assert axes[1].get_xlabel() == ("step" if kind == "train" else "time $t/\\tau$")
    reached = curve(axes[0].lines[-1])
    y = reduction.embed(runs["solve"].final if kind != "train" else 0.1).activity(data)["y"]
    if kind != "train":  # distances of the map are those of the two output units
        apart = np.linalg.norm(reached[0] - reached[1])
        assert apart == pytest.approx(float(np.linalg.norm(y[0] - y[1])), rel=1e-6)


def test_many_items_at_one_place_are_all_readable():
    names = [f"item {k}" for k in range(12)]
    points = np.stack([np.zeros((12, 2)), np.repeat([[1.0, 0], [-1, 0]], 6, axis=0)])
    plane, _ = plot.differentiation((np.array([0.0, 1.0]), points), names)
    assert_apart(plane)


# ---------------------------------------------------------------- labels
def placed_and_ends(values):
    """Heights of the names at the ends of lines, and of the ends, in pixels."""
    ax = plot.figure(plot.SINGLE, 2).subplots()
    for k, value in enumerate(values):
        ax.plot([0, 1], [0, value], label=f"line {k}")
    ax.set_ylim(0, 1000)
    drawn(plot.label_ends(ax))
    ends = ax.transData.transform([(1.0, value) for value in values])[:, 1]
    return np.array([text.get_position()[1] for text in labels(ax).texts]), ends


def test_labels_are_spread_as_little_as_possible():
    placed, ends = placed_and_ends([500, 500, 900, 530])
    gap = placed[0] - placed[1]
    assert 0 < gap == pytest.approx(placed[3] - placed[0])
    assert placed[[0, 1, 3]].mean() == pytest.approx(ends[[0, 1, 3]].mean())
    assert placed[2] == pytest.approx(ends[2])
    for low in (True, False):  # no name leaves the axes
        placed, ends = placed_and_ends([0, 0] if low else [1000, 1000])
        assert placed[0] - placed[1] == pytest.approx(gap)
        assert placed[1 if low else 0] == pytest.approx(ends[0])


def test_labels_follow_the_limits_of_the_axes():
    ax = plot.modes((np.arange(3.0), np.outer(np.arange(3), [1.0, 2.0])))
    for top in (3.0, 30.0):
        ax.set_ylim(0, top)
        drawn(ax)
        heights = [ax.transData.inverted().transform(t.get_position())[1] for t in labels(ax).texts]
        assert heights[1] > heights[0]
        if top == 3.0:
            assert heights == pytest.approx([2.0, 4.0 - 1.0], abs=0.5)
        assert_apart(ax)


def test_labelled_lines_are_named_at_their_ends():
    ax = plot.figure(plot.SINGLE, 2).add_subplot()
    t = np.arange(4.0)
    plot.curve(ax, t, t, label="first")
    plot.curve(ax, t, np.array([0.0, 2.0, 3.0, np.nan]), label="second")
    plot.curve(ax, t, t / 2)
    assert plot.label_ends(ax) is ax
    assert [text.get_text() for text in labels(ax).texts] == ["first", "second"]
    np.testing.assert_array_equal(labels(ax).points, [[3, 3], [2, 3]])
    assert_apart(ax)
    with pytest.raises(ValueError, match="no line of the axes has a label"):
        plot.label_ends(plot.figure().add_subplot())


# ---------------------------------------------------------------- refusals
def test_what_cannot_be_drawn(system, runs):
    data, reduction = system
    flow, ax = runs["flow"], plot.figure().add_subplot()
    small = gdln.train(reduction.embed(START), data, **STEPS, keep_models=False)
    attempts = [
        (lambda: plot.learning(reduction), "run is a Reduction, which holds no losses: solve it"),
        (lambda: plot.learning(ax, flow), "run is an Axes: the run comes first"),
        (lambda: plot.learning(data), "run is a GatedData, which holds no losses: pass what"),
        (
            lambda: plot.learning(runs["train"], runs["solve"]),
            "the run counts steps and",
        ),
        (lambda: plot.learning(runs["train"], reduction), r"reduction\.train\(b0, rule"),
        (lambda: plot.learning(runs["batch"], reduction), "the start of one gradient flow"),
        (lambda: plot.learning({"a": flow}, {"b": flow}), r"theory names \['b'\]"),
        (lambda: plot.learning((TS, np.ones(4))), r"times of shape \(5,\) and values"),
        (lambda: plot.learning(runs["sweep"][["models.stacks.0"]]), "0 variables called losses"),
        (lambda: plot.modes(flow), "run holds networks; modes are read in the frames"),
        (lambda: plot.modes(flow, reduction, pathway="x->y"), "pathway is 'x->y'; run has"),
        (lambda: plot.modes(small, reduction=reduction), "models of this run were not kept"),
        (lambda: plot.modes(runs["solve"], labels=["one"]), "labels has 1 entries for 4 curves"),
        (lambda: plot.modes((TS, np.ones((5, 30)))), "more curves than can be told apart"),
        (
            lambda: plot.modes((TS, np.ones(5))),
            r"strengths of shape \(5,\); expected \(time, mode\)",
        ),
        (lambda: plot.similarity(small), "data is a NoneType; pass the gdln.GatedData"),
        (lambda: plot.similarity(runs["solve"], data), "pass reduction=gdln.reduce"),
        (lambda: plot.similarity(flow, data, node="h3"), "node is 'h3'; nodes"),
        (lambda: plot.similarity(np.ones((2, 3))), r"shape \(2, 3\); expected \(n, n\)"),
        (lambda: plot.differentiation(small, data), "models of run were not kept"),
        (lambda: plot.differentiation(runs["batch"], data), r"run is a batch of shape \(3,\)"),
        (lambda: plot.differentiation(flow, ITEMS), "items is a tuple; pass gdln.GatedData"),
        (lambda: plot.differentiation(flow.final, data), "run is one network"),
        (lambda: plot.differentiation((TS, np.ones((5, 1, 2)))), "there are 1 items"),
        (lambda: plot.differentiation((TS, np.full((5, 2, 2), np.nan))), "not finite"),
        (lambda: plot.differentiation(flow, data, ax=[ax]), "pass two Axes"),
    ]
    for attempt, words in attempts:
        with pytest.raises(ValueError, match=words):
            attempt()


def test_arguments_of_another_type_are_refused_in_plain_python(refused_plainly):
    """Of pictures and of pathways, in one process."""
    refused_plainly(
        """
import numpy as np, gdln_jax as gdln
from gdln_jax import plot
curve, axes = (np.arange(3.0), np.arange(3.0)), plot.figure().subplots(1, 2)
graph = gdln.Graph.chain([2, 2, 2])
data = gdln.GatedData({"x": np.eye(2)}, {"y": np.diag([2.0, 1.0])})
reduction = gdln.reduce(graph, data)
net = reduction.embed(0.1)
run = gdln.train(net, data, optimizer=gdln.rules.sgd(0.1), steps=1)
solved = reduction.train(0.1, rule=gdln.rules.sgd(0.1), steps=1, check_end=False)
attempts = [
    (lambda: plot.learning(curve, ax=axes), "ax is a ndarray; pass one Axes"),
    (lambda: plot.learning(curve, ax=plot.figure()), "ax is a Figure; pass one Axes"),
    (lambda: plot.similarity(np.eye(2), ax="left"), "ax is a str; pass one Axes"),
    (lambda: plot.differentiation((np.arange(2.0), np.ones((2, 2, 2))), ax=axes[0]), "two Axes"),
    (lambda: run.pathways(data), "reduction is a GatedData"),
    (lambda: run.pathways(reduction.quotient(0.1)), "reduction is a Quotient"),
    (lambda: run.pathways(solved), "reduction is a ReducedTrajectory"),
    (lambda: reduction.pathways(net), "run is a GatedNetwork; pass what gradient_flow"),
    (lambda: reduction.project(solved), "net is a ReducedTrajectory, not a GatedNetwork"),
    (lambda: reduction.project(3.0), "net is a float, not a GatedNetwork"),
]
"""
    )
