"""Pictures: what is drawn carries its meaning (dashes, colours, labels), at every size."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure

import gdln_jax as gdln
from gdln_jax import plot


@pytest.fixture
def ax():
    return plot.figure(plot.SINGLE, 2.4).add_subplot()


def test_style_is_restored():
    before = mpl.rcParams["font.size"]
    with plot.style():
        assert mpl.rcParams["font.size"] == 8
    assert mpl.rcParams["font.size"] == before


# Linear RGB as seen without green receptors: Machado, Oliveira and Fernandes (2009), severity 1.
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
# Linear sRGB to XYZ over the white point D65 (IEC 61966-2-1).
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
) / np.array([[0.95047], [1.0], [1.08883]])


def lab(colour, seen=None):
    """CIE L*, a*, b* of a colour, as it is or as `seen`."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if seen is not None:
        linear = np.clip(seen @ linear, 0, 1)
    xyz = XYZ @ linear
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("pair", list(itertools.combinations(plot.COLOURS, 2)), ids="-".join)
def test_colours_are_told_apart_also_without_green_receptors_and_in_grey(pair):
    plain, seen = ([lab(plot.COLOURS[c], how) for c in pair] for how in (None, DEUTERANOPIA))
    assert np.linalg.norm(plain[0] - plain[1]) > 40
    assert np.linalg.norm(seen[0] - seen[1]) > 20
    assert abs(plain[0][0] - plain[1][0]) > 9.9


def test_lab_of_known_colours():
    """Values of the CIE: white, and the primary red of sRGB."""
    np.testing.assert_allclose(lab("#FFFFFF"), [100, 0, 0], atol=0.02)
    np.testing.assert_allclose(lab("#FF0000"), [53.24, 80.09, 67.20], atol=0.02)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_modes_are_told_apart_in_grey(count):
    light = [lab(colour)[0] for colour in plot.mode_colours(count)]
    assert np.diff(light).min() > 9.9


def test_loss_curves(ax):
    t = np.linspace(0, 5, 11)
    losses = np.stack([np.exp(-t), np.exp(-2 * t), np.full(11, np.nan)])
    assert plot.loss_curves(ax, t, losses, theory=np.exp(-t), label="runs") is ax
    *seeds, median, theory = ax.lines
    assert [line.get_linewidth() < 1 for line in seeds] == [True] * 3
    # A failed run is left out of the median.
    np.testing.assert_allclose(median.get_ydata(), (np.exp(-t) + np.exp(-2 * t)) / 2)
    assert median.get_linestyle() == "-"
    assert theory.get_linestyle() == "--"
    assert ax.get_xlabel() == "time $t/\\tau$"
    assert ax.get_ylabel() == "loss $L$"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("scales", [("log", "log"), ("linear", "log"), ("log", "linear")])
def test_curves_keep_the_scales_of_the_axes(ax, scales, first):
    """No warning (they are errors here), and limits that show the data; before or after."""
    t, losses = np.array([0.0, 1, 10, 100]), np.array([1.0, 0.5, 1e-3, 1e-6])

    def scale():
        ax.set(xscale=scales[0], yscale=scales[1])

    if first:
        scale()
    plot.loss_curves(ax, t, losses)
    plot.mode_curves(ax, t, losses[:, None])
    if not first:
        scale()
    ax.figure.draw_without_rendering()
    assert (ax.get_xscale(), ax.get_yscale()) == scales
    low, high = ax.get_xlim()
    assert high == pytest.approx(100)
    assert low == pytest.approx(0 if scales[0] == "linear" else 1)
    low, high = ax.get_ylim()
    assert 1 < high < 10
    assert low == 0 if scales[1] == "linear" else 1e-8 < low < 1e-6


def test_limits_and_labels_that_are_there_stay(ax):
    t = np.linspace(0, 5, 11)
    ax.set(xlim=(1, 3), ylim=(0.1, 2), xlabel="epoch", ylabel="error")
    plot.loss_curves(ax, t, np.exp(-t))
    plot.mode_curves(ax, t, np.exp(t)[:, None])
    assert (*ax.get_xlim(), *ax.get_ylim()) == (1, 3, 0.1, 2)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "error")


def test_later_curves_are_in_the_picture_too(ax):
    t = np.linspace(0, 5, 11)
    plot.loss_curves(ax, t, np.exp(-t))
    plot.loss_curves(ax, 2 * t, 3 * np.exp(-t))
    ax.figure.draw_without_rendering()
    assert ax.get_xlim() == (0, 10)
    assert ax.get_ylim()[0] == 0
    assert 3 < ax.get_ylim()[1] < 3.5


def test_steps_are_not_called_times(ax):
    steps = np.arange(0, 100, 10)
    plot.loss_curves(ax, steps, np.exp(-steps / 10))
    assert ax.get_xlabel() == "step"
    plot.loss_curves(ax, steps, np.exp(-steps / 10), xlabel="epoch")
    assert ax.get_xlabel() == "epoch"
    other = plot.figure().add_subplot()
    plot.mode_curves(other, steps, np.ones((10, 2)), ylabel="strength")
    assert (other.get_xlabel(), other.get_ylabel()) == ("step", "strength")


def test_labelled_curves_differ_in_colour(ax):
    t = np.arange(4.0)
    for k in range(3):
        plot.curve(ax, t, k * t, label=f"width {k}")
        plot.curve(ax, t, k * t, theory=True, label=f"theory {k}")
    plot.loss_curves(ax, t, t, label="losses")
    colours = [line.get_color() for line in ax.lines]
    assert colours[0] == plot.COLOURS["trained"]
    assert colours[1] == plot.COLOURS["theory"]
    assert len(set(colours)) == len(colours) == 7
    plot.curve(ax, t, t, theory=True, linestyle=":", label="told apart by its dots")
    assert ax.lines[-1].get_color() == plot.COLOURS["theory"]
    # Without a label, or with a colour, as ever.
    plot.curve(ax, t, t)
    plot.curve(ax, t, t, colour="red", label="red")
    assert [line.get_color() for line in ax.lines[-2:]] == [plot.COLOURS["trained"], "red"]


def test_one_run_has_no_band(ax):
    plot.runs(ax, [0, 1, 2], [3.0, 2.0, 1.0])
    assert len(ax.lines) == 1
    assert not ax.collections


def test_mode_curves(ax):
    t = np.arange(4.0)
    plot.mode_curves(ax, t, np.outer(t, [1.0, 2.0]), theory=np.outer(t, [1.0, 2.0]), label="B")
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", "-", "--"]
    assert ax.get_legend_handles_labels()[1] == ["B"]
    assert len(plot.mode_colours(5)) == 5


@pytest.mark.parametrize("signed", [False, True])
def test_similarity_scales_from_0_or_about_0(ax, signed):
    matrix = np.eye(6) - (0.5 if signed else 0.0) * np.eye(6)[::-1]
    plot.similarity(ax, matrix, num_domains=3)
    (image,) = ax.images
    assert image.get_clim() == (-matrix.max() if signed else 0, matrix.max())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "3"]


def test_matrix_panels_share_their_scale():
    figure = plot.figure(plot.SINGLE, 2)
    axes = figure.subplots(1, 2)
    plot.matrix_panels(axes, [np.eye(3), 2 * np.eye(3)], ["a", "b"], colourbar="output")
    assert axes[0].images[0].get_clim() == axes[1].images[0].get_clim() == (0, 2)


def assert_apart(axis):
    """No label of the axis overlaps the next one."""
    boxes = [label.get_window_extent() for label in axis.get_ticklabels()]
    assert len(boxes) > 1
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


ANIMALS = ["canary", "robin", "salmon", "sunfish", "oak", "pine", "rose", "daisy"]


@pytest.mark.parametrize("names", [ANIMALS, list("abcdefgh"), [f"item number {k}" for k in "12"]])
def test_names_of_columns_do_not_overlap(names):
    figure = plot.figure(plot.SINGLE, 2)
    axes = figure.subplots(1, 2)
    matrices = [np.eye(len(names))] * 2
    plot.matrix_panels(axes, matrices, ["a", "b"], names=names, colourbar="output")
    figure.draw_without_rendering()
    for ax in axes:
        assert_apart(ax.xaxis)
        assert {text.get_text() for text in ax.get_xticklabels()} <= set(names)


@pytest.mark.parametrize("count", [4, 12])
def test_names_of_domains_do_not_overlap(ax, count):
    names = [f"photographs {k}" for k in range(count)]
    plot.similarity(ax, np.eye(3 * count), num_domains=count, domain_names=names)
    ax.figure.draw_without_rendering()
    assert_apart(ax.xaxis)
    assert_apart(ax.yaxis)


@pytest.mark.parametrize("m", [1, 7, 40])
def test_route_pattern(ax, m):
    plot.route_pattern(ax, np.eye(m))
    assert len(ax.get_xticks()) <= 10


def test_a_pattern_with_more_outputs_than_inputs_has_a_tick_for_each(ax):
    ax.set_ylabel("task")
    plot.route_pattern(ax, np.ones((2, 5)))
    assert [text.get_text() for text in ax.get_xticklabels()] == list("12345")
    assert [text.get_text() for text in ax.get_yticklabels()] == list("12")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("output domain", "task")


def test_a_similarity_keeps_the_labels_of_the_axes(ax):
    ax.set(xlabel="picture", ylabel="picture")
    plot.similarity(ax, np.eye(4), num_domains=2)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("picture", "picture")


@pytest.mark.parametrize("m", [1, 3, 10, 25])
def test_architecture_of_routing(ax, m):
    graph = gdln.tasks.routing(m, 1, width=64).graph
    path = ("x0->h1", "h1->h2", f"h2->y{m - 1}")
    other = ("x0->h1", "h1->h2", "h2->y0")
    plot.architecture(ax, graph, paths=[path, other], closed=["h2->y0", "y0"])
    written = {text.get_text() for text in ax.texts}
    assert {"x0", "h1", "h2", f"y{m - 1}"} <= written
    assert ("⋮" in written) == (m > 10)
    nodes = len(ax.patches)
    assert nodes == 2 + 2 * min(m, 9 if m > 10 else 10)


def test_architecture_takes_the_graph_first_or_second(ax):
    graph = gdln.Graph.chain([2, 3, 2])
    forms = [
        lambda: plot.architecture(graph, ax=ax),
        lambda: plot.architecture(ax, graph),
        lambda: plot.architecture(ax, graph=graph),
        lambda: plot.architecture(ax=ax, graph=graph),
    ]
    assert all(draw() is ax for draw in forms)
    for made in (plot.architecture(graph), plot.architecture(None, graph)):
        assert made is not ax
        assert {"x", "h1", "y"} <= {text.get_text() for text in made.texts}
    with pytest.raises(ValueError, match=r"graph is a NoneType; pass a gdln\.Graph"):
        plot.architecture(ax)


WIDE = {"x": "retina of the left eye", "h": "a hidden layer of many units", "y": "name of the item"}


@pytest.mark.parametrize("layout", ["constrained", None])
@pytest.mark.parametrize("horizontal", [True, False])
@pytest.mark.parametrize("width", [2.0, 4.0])
def test_wide_labels_stay_inside_the_axes(width, horizontal, layout):
    graph = gdln.Graph({"x": 2, "x2": 2, "h": 3, "y": 2}, [("x", "h"), ("x2", "h"), ("h", "y")])
    figure = Figure((width, 3), layout=layout)
    ax = figure.add_subplot()
    plot.architecture(ax, graph, labels=WIDE, horizontal=horizontal)
    figure.draw_without_rendering()
    for text in ax.texts:
        if text.get_text():
            box = text.get_window_extent()
            assert box.x0 > ax.bbox.x0 - 1, text
            assert box.x1 < ax.bbox.x1 + 1, text
            assert float(text.get_fontsize()) >= 6


def test_shared_edges_are_green_and_all_graphs_can_be_drawn(ax):
    graph = gdln.Graph(
        {"x": 2, "h": 3, "k": 3, "y": 2},
        [("x", "h", "a"), ("x", "h", "b"), ("h", "k"), ("k", "y"), ("x", "y")],
    )
    plot.architecture(ax, graph, paths=[("a", "h->k", "k->y"), ("b", "h->k", "k->y")], labels=False)
    colours = [text.arrow_patch.get_edgecolor() for text in ax.texts if text.arrow_patch]
    green = to_rgba(plot.COLOURS["shared"])
    assert sum(np.allclose(colour, green) for colour in colours) == 2
    plot.architecture(ax, graph, labels={"x": "$x$"}, horizontal=False)
    ax.figure.savefig("/dev/null", format="png")


@pytest.mark.parametrize("horizontal", [True, False])
@pytest.mark.parametrize("early", [(), ("z",)])
def test_an_edge_that_skips_levels_passes_no_node(ax, early, horizontal):
    """Through a node it would seem to end there; also where an output stands in a later column."""
    graph = gdln.Graph(
        {"x": 2, "w": 2, "h": 3, "k": 3, "y": 2, **dict.fromkeys(early, 2)},
        [
            *[("x", "h"), ("w", "h"), ("h", "k"), ("k", "y")],
            *[("x", "y", "a"), ("w", "y", "b"), ("x", "k", "c")],
            *[("h", name) for name in early],
        ],
    )
    plot.architecture(ax, graph, labels=False, horizontal=horizontal)
    ax.figure.draw_without_rendering()
    boxes = dict(zip(graph.nodes, (patch.get_window_extent() for patch in ax.patches), strict=True))
    arrows = [text.arrow_patch for text in ax.texts if text.arrow_patch]
    for edge, arrow in zip(graph.edges, arrows, strict=True):
        (line,) = arrow.get_path().to_polygons(closed_only=False)
        line = np.concatenate([np.linspace(a, b, 20) for a, b in itertools.pairwise(line)])
        for name, box in boxes.items():
            inside = any(box.contains(*point) for point in line)
            assert inside == (name in (edge.source, edge.target)), (edge.name, name)
