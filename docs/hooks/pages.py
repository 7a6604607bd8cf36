"""What mkdocs does not do by itself: API pages, notebooks as pages, formulas without scripts.

The API reference follows the public names in `gdln_jax/__init__.pyi` and those of its
namespaces, so that a new public name is documented without an edit here. Nothing is imported: the
sources are read.
"""

import ast
import base64
import functools
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "gdln_jax"
# Outputs beyond this are shortened: a page shows what a cell does, not a log.
_LONGEST = 4000
# Statements of more lines are no examples.
_LONG = 12
_BLOCKS = re.DOTALL | re.MULTILINE


# ------------------------------------------------------------------ API reference
def top_level() -> dict[str, str]:
    """Public name -> the module it comes from, as `gdln_jax/__init__.pyi` lists them; a namespace
    comes from itself.
    """
    names = {}
    for node in ast.walk(_parsed(PACKAGE / "__init__.pyi")):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gdln_jax"):
            module = node.module.removeprefix("gdln_jax").lstrip(".")
            public = [alias.name for alias in node.names if not alias.name.startswith("_")]
            names.update({name: module or name for name in public})
    return names


def namespaces() -> list[str]:
    """Namespaces that users type, such as `exact`."""
    return [name for name, module in top_level().items() if module == name and _source(name)]


def members(namespace: str) -> list[str]:
    """Public names of a namespace: what it re-exports, or defines itself."""
    path = _source(namespace)
    assert path is not None
    tree = _parsed(path)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    reexported = [
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    own = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    return reexported + own


def sections() -> dict[str, list[str]]:
    """Section of the workflow -> its public names, by the comments in `gdln_jax/__init__.pyi`."""
    found: dict[str, list[str]] = {}
    for line in (PACKAGE / "__init__.pyi").read_text(encoding="utf-8").splitlines():
        if line.startswith("# == "):
            names = found.setdefault(line.removeprefix("# == "), [])
        elif (name := line.rpartition(" as ")[2]) in top_level():
            names.append(name)
    return found


def api_pages() -> dict[str, str]:
    """Path -> Markdown of every page of the API reference, in the order of the workflow."""
    apart = namespaces()
    overview = ["# Reference", "", "Everything is reached from `import gdln_jax as gdln`.", ""]
    pages = {"api/index.md": ""}
    for title, names in sections().items():
        slug = re.sub(r"\W+", "-", title.lower())
        own = [name for name in names if name not in apart]
        if own:
            entries = "\n".join(_entry(f"gdln_jax.{name}") for name in own)
            pages[f"api/{slug}.md"] = f"# {title}\n\n{entries}"
        overview += [f"## {title}", "", "| | |", "|---|---|"]
        for name in names:
            place = f"{name}.md" if name in apart else f"{slug}.md#gdln_jax.{name}"
            overview.append(f"| [`{name}`]({place}) | {summary(name)} |")
            if name in apart:
                entries = "\n".join(_entry(f"gdln_jax.{name}.{member}") for member in members(name))
                pages[f"api/{name}.md"] = (
                    f"# `gdln.{name}`\n\n::: gdln_jax.{name}\n"
                    f"    options: {{members: false, show_root_heading: false}}\n\n{entries}"
                )
        overview.append("")
    pages["api/index.md"] = "\n".join(overview)
    return pages


def _entry(name: str) -> str:
    """A public name with its documentation, and an example of its use, which tests run."""
    public = name.removeprefix("gdln_jax.")
    # `relu.discover_gates` is `discover_gates`.
    example = examples().get(public) or examples().get(public.rpartition(".")[2])
    return f"::: {name}\n" + (f"\n{example}\n" if example else "")


@functools.cache
def examples() -> dict[str, str]:
    """Public name -> Markdown of an example.

    Those of `docs/examples/`, a section for each name; for other names the shortest statement on a
    page or in a notebook that uses it, with a link.
    """
    found: dict[str, tuple[int, str]] = {}
    for path, block in _code_of_pages():
        try:
            statements = ast.parse(block).body
        except SyntaxError:  # a command of IPython
            continue
        for statement in statements:
            code = ast.get_source_segment(block, statement) or ""
            if isinstance(statement, ast.Import | ast.ImportFrom) or code.count("\n") > _LONG:
                continue
            for name in {_public(node) for node in ast.walk(statement)} - {""}:
                if name not in found or len(code) < found[name][0]:
                    text = f"Example, from [{path}](../{path}):\n\n```python\n{code}\n```"
                    found[name] = len(code), text
    own = {}
    for path in sorted((DOCS / "examples").glob("*.md")):
        for section in path.read_text("utf-8").split("\n## ")[1:]:
            name, _, text = section.partition("\n")
            text = text.rstrip().replace("![](", "![the picture](../examples/")
            own[name] = f"Example:\n{text}"
    return {name: text for name, (_, text) in found.items()} | own


def _code_of_pages() -> Iterator[tuple[str, str]]:
    """Pages and notebooks with each of their blocks of code."""
    for path in sorted(DOCS.glob("*.md")):
        for block in re.findall(r"^```python\n(.*?)^```$", path.read_text("utf-8"), _BLOCKS):
            yield path.name, block
    for path in sorted((ROOT / "notebooks").glob("*.ipynb"), key=_number):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                code = re.sub(r"^%.*$", "", "".join(cell["source"]), flags=re.MULTILINE)
                yield f"notebooks/{path.stem}.md", code


def _public(node: ast.AST) -> str:
    """`exact.linear_mode` for `gdln.exact.linear_mode` or `exact.linear_mode`; '' for others."""
    if not isinstance(node, ast.Attribute):
        return ""
    chain = ast.unparse(node).split(".")
    if chain[0] == "gdln":
        return ".".join(chain[1:])
    return ".".join(chain) if chain[0] in namespaces() and len(chain) == 2 else ""


def summary(name: str) -> str:
    """The first sentence of the documentation of a name of `gdln_jax/__init__.pyi`."""
    module = top_level()[name]
    path = _source(name) if module == name else None
    text = ast.get_docstring(_parsed(path)) or "" if path else _docstring(module, name)
    first = re.split(r"\n\n|(?<!Eq)[.:](?:\s|$)", text, maxsplit=1)[0].replace("\n", " ")
    return first.replace(r"\|", r"\Vert ").replace("|", "&#124;")


def _docstring(module: str, name: str) -> str:
    """Documentation of a name where it is defined, over modules that re-export it."""
    path = _source(module.replace(".", "/"))
    assert path is not None, module
    body = _parsed(path).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            if text := ast.get_docstring(node):  # overloads have none
                return text
        elif isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
            return _docstring((node.module or "").removeprefix("gdln_jax."), name)
        elif (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and ast.unparse(node).startswith((f"{name} =", f"{name}:"))
            and isinstance(after, ast.Expr)
        ):
            return str(ast.literal_eval(after.value))
    return ""


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _source(name: str) -> Path | None:
    places = (PACKAGE / name / "__init__.py", PACKAGE / f"{name}.py")
    return next((path for path in places if path.exists()), None)


# ------------------------------------------------------------------ notebooks
def notebook_pages() -> dict[str, str]:
    """Path -> Markdown of every notebook, with the outputs that it holds."""
    return {
        f"notebooks/{path.stem}.md": "\n\n".join(_cells(json.loads(path.read_text("utf-8")), path))
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"), key=_number)
    }


def _number(notebook: Path) -> int:
    return int(notebook.stem.partition("_")[0])


def _cells(notebook: dict[str, Any], path: Path) -> Iterator[str]:
    for number, cell in enumerate(notebook["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            if cell["id"].startswith("exercise-") or "## Exercises" in text:
                text = re.sub(r"^(\d+)\. ", r"**\1.** ", text, flags=re.MULTILINE)
            # On the site pages lie one level higher, and notebooks are pages.
            yield re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text.replace("](../docs/", "](../"))
            if number == 0:
                yield f"[Download this notebook]({path.name}) · [how to open it](../notebooks.md)"
        elif "solution" in cell["metadata"].get("tags", ()):
            title, _, code = text.partition("\n")
            summary = f"<summary>{title.removeprefix('# @title ')}</summary>"
            shown = [f"```python\n{code}\n```", *_outputs(cell)]
            yield "\n\n".join([f"<details markdown>{summary}", *shown, "</details>"])
        elif text.strip():
            yield f"```python\n{text}\n```"
            yield from _outputs(cell)


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    for output in cell["outputs"]:
        yield from _output(output)


def _output(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    for kind in ("image/gif", "image/png"):
        if kind in data:
            encoded = base64.b64encode(base64.b64decode("".join(data[kind]))).decode()
            yield f'<img alt="output of the cell above" src="data:{kind};base64,{encoded}">'
            return
    text = "".join(output.get("text", data.get("text/plain", "")))[:_LONGEST].rstrip()
    if text:
        yield f'<pre class="output"><code>{html.escape(text)}</code></pre>'


# ------------------------------------------------------------------ what mkdocs calls
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages where the navigation names their folders; name the version."""
    version = ast.literal_eval(_parsed(PACKAGE / "_version.py").body[-1].value)
    config.site_name = f"gdln_jax {version}"
    config.copyright = f"gdln_jax {version}, Apache-2.0"
    generated = {"notebooks/": ["notebooks.md", *notebook_pages()], "api/": api_pages()}
    config.nav = [
        {title: list(generated[value])} if str(value) in generated else {title: value}
        for entry in config.nav or ()
        for title, value in entry.items()
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the files of the repository that are pages as they are."""
    pages = {**api_pages(), **notebook_pages()}
    pages["changelog.md"] = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        pages[f"notebooks/{path.name}"] = path.read_text("utf-8")
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def thumbnails(gallery: str) -> str:
    """Insert a grid of the pictures, each of which leads to its entry, above the table."""
    rows = re.findall(r"^\| \[([\w-]+)\]\(#\1\) \| (.*?) \|", gallery, flags=re.MULTILINE)
    links = [
        f"[![](gallery/{name}.png)**{name}** {figure}](#{name})"
        for name, figure in rows
        if f"](gallery/{name}.png)" in gallery
    ]
    grid = "\n".join(['<div class="thumbnails" markdown>', "", *links, "", "</div>"])
    return re.sub(r"^(?=\| recipe \|)", f"{grid}\n\n", gallery, count=1, flags=re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links to notebooks, which in the repository lie beside docs/, lead to their pages."""
    if page.file.src_uri == "gallery.md":
        markdown = thumbnails(markdown)
    return re.sub(r"\]\(\.\./notebooks/(\w+)\.ipynb\)", r"](notebooks/\1.md)", markdown)


def on_page_content(content: str, page: Page, **_: Any) -> str:
    r"""Formulas become MathML, which browsers show without a script; citations become links."""
    for begin, end, display in ((r"\(", r"\)", "inline"), (r"\[", r"\]", "block")):
        content = re.sub(
            rf'<(span|div) class="arithmatex">{re.escape(begin)}(.*?){re.escape(end)}</\1>',
            lambda found, display=display: _formula(html.unescape(found[2]), display),
            content,
            flags=re.DOTALL,
        )
    return _cited(content, page.url)


def _formula(tex: str, display: str) -> str:
    """A formula as MathML; one on a line of its own scrolls where the page is narrow."""
    mathml = convert(tex, display=display)
    for bar in ("&#x0007C;", "&#x02016;"):  # |x| without the spaces of an operator
        mathml = re.sub(
            rf"<mo( [^>]*)?>{bar}</mo>", rf'<mo\1 lspace="0" rspace="0">{bar}</mo>', mathml
        )
    return f'<div style="overflow: auto hidden">{mathml}</div>' if display == "block" else mathml


def _cited(content: str, url: str) -> str:
    """`theory#certificate` leads to its section, and E4 to its line of the errata."""
    if url == "errata.html":
        return re.sub(r"<td>E(\d+)</td>", r'<td id="e\1">E\1</td>', content)

    def link(found: re.Match[str]) -> str:
        page, anchor = ("theory.html", found[1]) if found[1] else ("errata.html", f"e{found[2]}")
        return f'<a href="{get_relative_url(page, url)}#{anchor}">{found[0]}</a>'

    # Text alternates with tags, and with elements that stay as they are.
    parts = re.split(r"(<(code|pre|a|h\d|math|style)\b.*?</\2>|<[^>]*>)", content, flags=re.DOTALL)
    del parts[2::3]  # the inner group, the name of the element
    cited = r"\btheory#([\w-]+)|\bE(\d{1,2})\b(?!\s*=)"
    parts[::2] = [re.sub(cited, link, text) for text in parts[::2]]
    return "".join(parts)
