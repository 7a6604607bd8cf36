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
PACKAGE = ROOT / "gdln_jax"
# Outputs beyond this are shortened: a page shows what a cell does, not a log.
_LONGEST = 4000


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


def api_pages() -> dict[str, str]:
    """Path -> Markdown of every page of the API reference."""
    apart = namespaces()
    lines = ["# `gdln_jax`", "", "Everything is reached from `import gdln_jax as gdln`.", ""]
    lines += [f"::: gdln_jax.{name}\n" for name in top_level() if name not in apart]
    pages = {"api/index.md": "\n".join(lines)}
    for name in apart:
        lines = [f"# `gdln.{name}`", "", f"::: gdln_jax.{name}"]
        lines += ["    options: {members: false, show_root_heading: false}", ""]
        lines += [f"::: gdln_jax.{name}.{member}\n" for member in members(name)]
        pages[f"api/{name}.md"] = "\n".join(lines)
    return pages


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
        f"notebooks/{path.stem}.md": "\n\n".join(_cells(json.loads(path.read_text("utf-8"))))
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"), key=_number)
    }


def _number(notebook: Path) -> int:
    return int(notebook.stem.partition("_")[0])


def _cells(notebook: dict[str, Any]) -> Iterator[str]:
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # On the site pages lie one level higher, and notebooks are pages.
            yield re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text.replace("](../docs/", "](../"))
        elif text.strip():
            yield f"```python\n{text}\n```"
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
    generated = {"notebooks/": notebook_pages(), "api/": api_pages()}
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
