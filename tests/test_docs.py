"""The pages of the docs: their code runs as printed, in order, and says what the text says."""

import re
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parent.parent / "docs"


def run(page):
    """Execute the Python blocks of a page one after the other; returns what they defined."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    scope: dict = {}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"docs/{page}.md, block {number}", "exec"), scope)
    return scope


def test_reduction_page(capsys):
    scope = run("reduction")
    printed = capsys.readouterr().out
    assert "Reduction(4 modes, 3 path groups, diagonal, residual " in printed
    assert scope["reduction"].residual < 1e-12
    # Who learns which mode: the direct edge the weak ones, the shared layer the strong one.
    direct, shared = (scope["product"][name][-1] for name in ("reflex", "through shared"))
    share = direct / (direct + shared)
    assert np.all(share[2:] > 0.9)
    assert share[0] < 0.5
    gaps = [float(g) for g in re.findall(r"largest difference ([\d.]+)", printed)]
    assert gaps[1] < 0.6 * gaps[0]
    assert all(scope["after"][edge] < 0.1 < scope["before"][edge] for edge in scope["after"])
    assert "2 classes of 15 edges" in printed
    assert "leaves the aligned manifold" in printed
    assert np.abs(scope["exact"].losses - scope["flow"].losses).max() < 1e-9
