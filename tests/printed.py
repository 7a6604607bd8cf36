"""What the code of a page prints, and what the page shows below the code.

A page shows the output of a Python block as a `text` block directly after it. `shown` runs a page
as tests do; `python tests/printed.py PAGE.md ...` writes the outputs into pages.
"""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
_NUMBER = r"(?<![\w.])[-+]?\d+\.?\d*(?:e[-+]?\d+)?"
# A number below this is a rounding error, or as good as zero; digits beyond six differ by machine.
_ROUNDING, _DIGITS = 1e-9, 1e-6


class Block(NamedTuple):
    """A block of code, what the page shows below it, and what it printed."""

    name: str
    code: str
    output: str | None
    printed: str


def run(page: Path) -> tuple[dict, list[Block]]:
    """Execute the Python blocks of a page in order; returns what they defined, and the blocks."""
    scope: dict = {}
    blocks = []
    for number, found in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
        name, printed = f"{page.name}, block {number}", io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found["code"], name, "exec"), scope)
        blocks.append(Block(name, found["code"], found["output"], printed.getvalue()))
    return scope, blocks


def shown(page: Path) -> dict:
    """Run a page and hold what it prints against what it shows; returns what it defined.

    The output is printed once more, for tests that look into it.
    """
    scope, blocks = run(page)
    for block in blocks:
        print(block.printed, end="")
    wrong = [difference for block in blocks if (difference := _difference(block))]
    assert not wrong, "\n".join([*wrong, f"python tests/printed.py {page} writes what is printed"])
    return scope


def differs(expected: str, printed: str) -> str:
    """Where `printed` is not what a page shows; '' if it is.

    White space does not count, `...` stands for anything, whole numbers are compared exactly and
    others to the digits shown.
    """
    texts = [_pattern(text) for text in re.split(_NUMBER, expected)]
    found = re.fullmatch(rf"\s*({_NUMBER})\s*".join(texts), printed.strip(), flags=re.DOTALL)
    if not found:
        return "other words"
    for number, there in zip(re.findall(_NUMBER, expected), found.groups(), strict=True):
        if not _close(number, there):
            return f"{there} where the page shows {number}"
    return ""


def _difference(block: Block) -> str:
    """Where a block prints other than the page shows; '' if it does not."""
    if not block.printed.strip() or block.output is None:
        nothing = not block.printed.strip() and block.output is None
        return "" if nothing else f"{block.name}: shown {block.output!r}, prints {block.printed!r}"
    wrong = differs(block.output, block.printed)
    return wrong and f"{block.name}: {wrong}; it printed\n{block.printed}"


def _pattern(text: str) -> str:
    parts = (r"\s*".join(map(re.escape, part.split())) for part in text.split("..."))
    return r"\s*" + ".*?".join(parts) + r"\s*"


def _close(number: str, there: str) -> bool:
    """Whether two numbers agree to the digits of the first."""
    if number == there:
        return True
    if not set(".e") & set(number):
        return False
    mantissa, _, exponent = number.partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0
    a, b = float(number), float(there)
    return max(abs(a), abs(b)) < _ROUNDING or abs(a - b) <= max(0.51 * unit, _DIGITS * abs(a))


def write(page: Path) -> None:
    """Put what the blocks of a page print below them."""
    _, blocks = run(page)
    outputs = iter(block.printed for block in blocks)

    def put(found: re.Match[str]) -> str:
        printed = next(outputs).rstrip()
        below = f"\n\n```text\n{printed}\n```" if printed else ""
        return f"```python\n{found['code']}```{below}"

    page.write_text(_BLOCK.sub(put, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
