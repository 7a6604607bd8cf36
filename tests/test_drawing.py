"""Drawings of a user's architecture: what is drawn, and what a mistake in the file is told."""

from pathlib import Path

import pytest
from command_parts import drawing as _drawing
from matplotlib.figure import Figure

from gdln_jax.recipes import OptionError

GOOD = """\
edges = [
  ["x0", "h1"], ["x1", "h1"],
  ["h1", "y"],
  ["x1", "y", "reflex"],
]
paths = [["x0->h1", "h1->y"]]
[nodes]
x0 = 3
x1 = 3
h1 = 8
y = 2
[gates]
"x1->h1" = 0
reflex = 0.5
[labels]
y = "out"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.toml"
    path.write_text(GOOD)
    return path


def test_toml(file):
    drawing = _drawing.read_drawing(file)
    assert drawing.graph.nodes == {"x0": 3, "x1": 3, "h1": 8, "y": 2}
    assert [edge.name for edge in drawing.graph.edges][-1] == "reflex"
    assert drawing.paths == [["x0->h1", "h1->y"]]
    assert drawing.gates == {"x1->h1": 0, "reflex": 0.5}
    assert drawing.labels == {"y": "out"}


def test_python(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "import gdln_jax as gdln\n"
        "graph = gdln.Graph.chain([3, 8, 2])\n"
        "paths = graph.paths()\npaths = list(paths)\nhorizontal = False\n"
    )
    drawing = _drawing.read_drawing(file)
    assert drawing.paths == [("x->h1", "h1->y")]
    assert not drawing.horizontal


def test_the_command_draws_each_format(file, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for kind, start in starts.items():
        words = [] if kind == "png" else ["--out", f"pictures/net.{kind}"]
        done = command("draw", str(file), *words)
        assert done.exit_code == 0, done.output
        picture = tmp_path / (f"pictures/net.{kind}" if words else f"net.{kind}")
        assert picture.read_bytes().startswith(start)
    svg = (tmp_path / "pictures/net.svg").read_text()
    assert "x0" in svg
    assert "out" in svg


def test_an_edge_that_skips_levels_stays_on_the_picture(file):
    """`reflex` bends beyond the axes, whose limits were made for straight edges."""
    seen = []

    class Kept(Figure):
        def savefig(self, fname, **_):
            seen.append(self)
            Path(fname).touch()

    drawing = _drawing.read_drawing(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gdln_jax.plot._style.Figure", Kept)
        _drawing.draw(drawing, file.with_suffix(".png"))
    (figure,) = seen
    figure.draw_without_rendering()
    boxes = [text.arrow_patch.get_window_extent() for text in figure.axes[0].texts
             if getattr(text, "arrow_patch", None)]  # fmt: skip
    assert len(boxes) == 4
    assert min(box.y0 for box in boxes) >= 0
    assert max(box.y1 for box in boxes) <= figure.bbox.height


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('"h1", "y"]', '"h2", "y"]', 3, "uses node 'h2', which is not in nodes"),
        ('"h1", "y"]', '"h1"]', 3, "must be"),
        ('["h1", "y"]', '["h1", "y"], ["h1", "x0"]', 3, "cycle: "),
        ('["x1", "y", "reflex"]', '["x1", "y", "x1->h1"]', 4, "used twice"),
        ("x1 = 3", "x1 = 0", 9, "width of node 'x1' is 0"),
        ("x1 = 3", "x1 = ", 9, "Invalid value"),
        ("y = 2", "y = 2\nz = 2", 12, "'z' has neither"),
        ("paths", "path", 6, "'path' is not known (did you mean 'paths'?)"),
        ('[["x0->h1", ', '[["x0->h", ', 6, "did you mean 'x0->h1'"),
        ('[["x0->h1", ', '[["h1->y", ', 6, "does not start where"),
        ('"x1->h1" = 0', '"x1->h" = 0', 13, "is not a node or an edge"),
        ('"x1->h1" = 0', '"x1->h1" = "shut"', 13, "must be a number, got 'shut'"),
        ('"x1->h1" = 0', "x1 = 0", 13, "input node, which has no gate"),
        ('y = "out"', "y = 1", 16, "must be a text"),
        ('y = "out"', 'yy = "out"', 16, "did you mean 'y'"),
        ('y = "out"', "y = '$h_{1$'", 16, "(Expected end_group, found end of text); correct it"),
    ],
)
def test_a_mistake_is_told_with_its_line(file, old, new, line, message):
    assert GOOD.count(old) >= 1
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(OptionError) as error:
        _drawing.read_drawing(file)
    assert message in str(error.value)
    assert f"net.toml, line {line}: " in str(error.value)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("import gdln_jax as g\n\ngraph = g.Graph({'x': 1}, [('x', 'y')])", 3, "not in nodes"),
        ("graph = (", 1, "SyntaxError"),
        ("x = 1\ngraph = 3", 2, "defines no `graph"),
    ],
)
def test_a_mistake_in_python_is_told_with_its_line(tmp_path, text, line, message):
    file = tmp_path / "net.py"
    file.write_text(text)
    with pytest.raises(OptionError, match=f"net.py, line {line}: ") as error:
        _drawing.read_drawing(file)
    assert message in str(error.value)


def test_edges_below_a_table_are_explained(file):
    file.write_text("[nodes]\nx = 1\ny = 1\nedges = [['x', 'y']]\n")
    with pytest.raises(OptionError, match="put edges above"):
        _drawing.read_drawing(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.toml"], "cannot be read"),
        (["net.json"], "ends in .toml or .py"),
        (["net.toml", "--out", "net.gif"], ".png, .svg, .pdf"),
        (["net.toml", "--out", "net.toml/x.png"], "is a file"),
    ],
)
def test_what_cannot_be_drawn_is_exit_code_2_and_leaves_nothing(
    file, monkeypatch, command, words, message
):
    monkeypatch.chdir(file.parent)
    done = command("draw", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert [path.name for path in file.parent.iterdir()] == ["net.toml"]


def test_a_node_whose_name_is_no_text_is_refused(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text("edges = [['x', '$\\no$']]\n[nodes]\nx = 1\n'$\\no$' = 1\n")
    with pytest.raises(OptionError, match=r"a node's name is .* cannot read as mathematics"):
        _drawing.read_drawing(file)


def test_the_picture_stands_beside_its_file_and_replaces_only_its_like(
    file, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / "my.toml")

    def draw(*words):
        return command("draw", "elsewhere/my.toml", *words)

    for _ in range(2):  # its own is replaced
        assert draw().exit_code == 0
    picture = moved.with_suffix(".png")
    assert sorted(moved.parent.iterdir()) == [picture, moved]
    picture.write_bytes(b"a photograph")
    done = draw()
    assert done.exit_code == 2
    assert "elsewhere/my.png: not written by gdln_jax" in " ".join(done.output.split())
    assert picture.read_bytes() == b"a photograph"
    assert draw("--out", "elsewhere/my.png").exit_code == 0  # named by the user
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_ties_of_a_file(tmp_path):
    file = tmp_path / "net.toml"
    text = """edges = [["x", "h"], ["h", "y"], ["x", "y", "F"]]
frozen = ["F"]
[nodes]
x = 3
h = 2
y = 3
[shared]
W = ["x->h", "h->y^T"]
"""
    file.write_text(text)
    graph = _drawing.read_drawing(file).graph
    assert graph.parameter_of["h->y"] == ("W", True)
    assert graph.frozen == ("F",)
    file.write_text(text.replace('"h->y^T"', '"h->z"'))
    with pytest.raises(OptionError, match=r"line 7: .*'h->z', which is no edge"):
        _drawing.read_drawing(file)
