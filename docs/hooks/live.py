"""Live pages of the site, made when it is built: they are not kept in the repository."""

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
# In a process of its own: JAX's precision is set when it starts, and mkdocs is not to load it.
_WRITE = """
import sys
from pathlib import Path
from gdln_jax import _live
for name in _live.RECIPES:
    _live.recipe_page(name, Path(sys.argv[1], f"{name}.html"))
"""


@functools.cache
def live_pages() -> dict[str, str]:
    """Path -> HTML of the page of each recipe that has one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "JAX_ENABLE_X64": "1", "PYTHONPATH": str(ROOT)}
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", _WRITE, folder], check=True, env=environment
        )
        return {f"live/{path.name}": path.read_text("utf-8") for path in Path(folder).iterdir()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them as they are, beside docs/live.md, which links to them."""
    for path, content in live_pages().items():
        files.append(File.generated(config, path, content=content))
    return files
