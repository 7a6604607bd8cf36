"""Live pages in a browser: they load from a file without a network, react, and can be read.

Needs Chromium (apt install chromium) and playwright, which drives it.
"""

import re
import shutil
from pathlib import Path

import pytest
from live_parts import RECIPES, recipe_page

from gdln_jax import plot

# Pixels of letters that are read at arm's length.
SMALLEST = 12
NARROW, WIDE = 390, 1400

# The smallest font size of texts in the page, in shadow roots too, of canvases by their models.
FONTS = """() => {
  const sizes = [], look = root => { for (const e of root.querySelectorAll("*")) {
    if (e.shadowRoot) look(e.shadowRoot);
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (own && e.getClientRects().length && !["SCRIPT", "STYLE"].includes(e.tagName))
      sizes.push(parseFloat(getComputedStyle(e).fontSize));
  } };
  look(document.body);
  for (const m of Bokeh.documents[0]._all_models.values())
    for (const key of ["major_label_text_font_size", "axis_label_text_font_size"])
      if (m[key]) sizes.push(parseFloat(m[key]));
  return Math.min(...sizes);
}"""
# Labels of nodes that leave the picture, and texts that leave their box or the window.
OVERFLOW = """() => {
  const found = [], look = root => { for (const e of root.querySelectorAll("*")) {
    if (e.shadowRoot) look(e.shadowRoot);
    const r = e.getBoundingClientRect();
    const text = e.matches("h1, h2, p, .legend span, .bk-slider-title, button");
    const cut = e.clientWidth && e.scrollWidth > e.clientWidth + 1;
    if (text && (cut || r.right > innerWidth || r.left < 0)) found.push(e.textContent);
  } };
  look(document.body);
  const doc = Bokeh.documents[0], nodes = doc.get_model_by_name("data.nodes").data;
  const figure = doc.get_model_by_name("graph"), {start, end} = figure.x_range;
  const pen = document.createElement("canvas").getContext("2d"); pen.font = "13px sans-serif";
  nodes.label.forEach((label, k) => {
    const x = (nodes.x[k] - start) / (end - start) * figure.inner_width + nodes.shift[k];
    const wide = pen.measureText(label).width, left = nodes.align[k] === "right" ? x - wide : x;
    if (left < 0 || nodes.align[k] === "left" && x + wide > figure.inner_width) found.push(label);
  });
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page");
  return found;
}"""
DATA = "name => Array.from(Bokeh.documents[0].get_model_by_name(name).data.{})"


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no browser: apt install chromium")
    driver = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    with driver.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def opened(chromium, folder):
    """Opens the page of a recipe at an address and a width; what goes wrong fails the test."""
    contexts, wrong, asked = [], [], []

    def open_page(name, width=WIDE, state=""):
        path = folder / f"{name}.html"
        if not path.exists():
            recipe_page(name, path)
        context = chromium.new_context(offline=True, viewport={"width": width, "height": 844})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: m.type in ("error", "warning") and wrong.append(m.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri() + state)
        page.wait_for_function("live.ready")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


def data(page, name, column):
    return page.evaluate(DATA.format(column), name)


@pytest.mark.parametrize("name", RECIPES)
def test_a_page_can_be_read(opened, folder, name):
    page = opened(name, NARROW)
    assert (folder / f"{name}.html").stat().st_size < 3e6
    for width in (NARROW, WIDE):
        page.set_viewport_size({"width": width, "height": 844})
        # Bokeh fits its figures to the page a little later.
        wide = "Bokeh.documents[0].get_model_by_name('graph').outer_width"
        page.wait_for_function(
            f"Math.abs({wide} / {width} - {0.9 if width == NARROW else 0.37}) < 0.1"
        )
        assert page.evaluate(FONTS) >= SMALLEST
        assert page.evaluate(OVERFLOW) == []


def test_keys_move_sliders_and_curves_and_the_address_keeps_it(opened):
    page = opened("routing")
    before, edges = data(page, "data.loss", "y0"), data(page, "data.edges", "x0")
    page.locator("section.controls .noUi-handle").first.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("location.hash.includes('M=6')")
    after = data(page, "data.loss", "y0")
    assert after[0] == before[0]
    # Fewer domains learn faster, and two edges are gone; what was there stays in grey.
    assert sum(after) < 0.95 * sum(before)
    assert len(data(page, "data.edges", "x0")) == len(edges) - 2
    assert data(page, "old.loss", "y0") == before
    assert data(page, "at.loss", "y") == after[-1:]
    sent = opened("routing", state="#M=6")
    assert data(sent, "data.loss", "y0") == after
    sent.get_by_text("Back to the start").click()
    sent.wait_for_function("!location.hash")
    assert data(sent, "data.loss", "y0") == before


def test_the_space_bar_plays_and_scrubbing_moves_the_picture(opened):
    page = opened("claims")
    clock = "Bokeh.documents[0].get_model_by_name('clock').value"
    label = "Bokeh.documents[0].get_model_by_name('play').label"
    end = data(page, "data.edges", "width")
    page.keyboard.press("Space")
    page.wait_for_function(f"{clock} > 0 && {clock} < 1")
    assert page.evaluate(label) == "Pause"
    page.keyboard.press("Space")
    stopped = page.evaluate(clock)
    assert 0 < stopped < 1
    assert page.evaluate(label) == "Play"
    page.locator("section.time .noUi-handle").focus()
    page.keyboard.press("Home")
    page.wait_for_function(f"{clock} === 0")
    assert page.locator("#now").text_content() == "0"
    assert max(data(page, "data.edges", "width")) < min(end)


def test_an_address_that_cannot_be_is_passed_over(opened):
    page = opened("sharing", state="#q=3&own=nonsense&M=1&shared=1e9")
    assert data(page, "data.loss", "y0") == data(page, "old.loss", "y0")


def test_colours_are_those_of_the_figures(opened):
    page = opened("sharing")
    shown = set(data(page, "data.edges", "colour"))
    assert shown == {plot.COLOURS["shared"], plot.COLOURS["untrained"]}
    lines = page.evaluate(
        "() => Bokeh.documents[0].get_model_by_name('loss').renderers.slice(0, 2).map("
        "r => r.glyph.line_color.value)"
    )
    assert lines == [plot.COLOURS["faint"], plot.COLOURS["theory"]]


# ---------------------------------------------------------------- the command, without a browser
NET = """\
edges = [["x", "h"], ["x", "g"], ["h", "y"], ["g", "y"]]
strengths = [1, 0.5]
nodes = {x = 2, h = 4, g = 4, y = 2}
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.toml"
    path.write_text(NET)
    return path


def test_the_command_writes_a_page_of_a_file(net, command):
    done = command("explore", str(net))
    assert done.exit_code == 0, done.output
    page = net.with_suffix(".html").read_text("utf-8")
    assert "x→h→y" in page
    assert "share of examples on which a pathway is on" in page
    # One that was written here is written again; another is not.
    assert command("explore", str(net)).exit_code == 0
    net.with_suffix(".html").write_text("mine")
    done = command("explore", str(net))
    assert done.exit_code == 2
    assert "name the page with --out" in done.output
    assert net.with_suffix(".html").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["routng"], "did you mean 'routing'"),
        (["none.toml"], "cannot be read"),
        (["net.toml", "--out", "page.txt"], "PAGE.html"),
        (["net.toml", "--out", "folder.html"], "is a folder"),
        (["net.toml", "--b0", "0"], "must be above 0"),
        (["three.toml"], "node 'x' has width 2"),
        (["bad.toml"], "strengths must be a list of numbers above 0"),
        (["frozen.toml"], "gdln.live_page"),
        (["shut.toml"], "no mode to learn"),
        (["wide.toml"], "84 unknowns, a page integrates at most 80"),
    ],
)
def test_what_the_command_refuses(net, command, words, said):
    folder = net.parent
    (folder / "folder.html").mkdir()
    (folder / "three.toml").write_text(NET.replace("[1, 0.5]", "[1, 0.5, 0.2]"))
    (folder / "bad.toml").write_text(NET.replace("[1, 0.5]", "[1, -0.5]"))
    (folder / "frozen.toml").write_text('frozen = ["x->h"]\n' + NET)
    (folder / "shut.toml").write_text(NET + "gates = {h = 0, g = 0}\n")
    hidden = [f"h{k}" for k in range(3)]
    edges = [pair for h in hidden for pair in (["x", h], [h, "y"])]
    widths = ", ".join(f"{name} = 14" for name in ("x", *hidden, "y"))
    modes = f"strengths = {list(range(14, 0, -1))}"
    (folder / "wide.toml").write_text(f"edges = {edges}\n{modes}\nnodes = {{{widths}}}\n")
    done = command("explore", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_what_live_page_refuses(refused_plainly):
    refused_plainly("""
import jax.numpy as jnp, gdln_jax as gdln
task = gdln.tasks.hierarchy(width=8)
reduction = gdln.reduce(task.graph, task.data)
attempts = [
    (lambda: gdln.live_page(task, "page.html"), "reduction is a Task; pass gdln.reduce"),
    (lambda: gdln.live_page(reduction, "tests"), "tests is a folder"),
    (lambda: gdln.live_page(reduction, "page.html", b0=[1, 2]), "one per mode: (4,)"),
]
""")


def test_without_bokeh_the_remedy_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(ValueError, match=r"pip install 'gdln_jax\[live\]'"):
        recipe_page("routing", tmp_path / "page.html")


def test_the_page_of_the_docs(tmp_path, monkeypatch, capsys, command):
    """Its block runs, its file has a page, and it links to the page of each recipe."""
    text = (Path(__file__).parent.parent / "docs" / "live.md").read_text("utf-8")
    assert re.findall(r"\(live/(\w+)\.html\)", text) == list(RECIPES)
    monkeypatch.chdir(tmp_path)
    block = dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))
    exec(compile(block["python"], "docs/live.md", "exec"), {})
    assert capsys.readouterr().out == block["text"]
    assert "x1→h1→y" in Path("race.html").read_text("utf-8")
    Path("senses.toml").write_text(block["toml"])
    assert command("explore", "senses.toml").exit_code == 0
    assert "ear→g→voice" in Path("senses.html").read_text("utf-8")
