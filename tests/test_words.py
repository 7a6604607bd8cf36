"""The words of the package: terms of the field, no private language.

A list of phrases is kept out of code (identifiers, comments, docstrings, messages), pages,
notebooks' texts and this repository's own documents.
"""

import ast
import functools
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# phrase, as a pattern over words (`_` and capitals part the words of an identifier) -> what to say
PHRASES = {
    r"rooms?": "module, space",
    r"(?<!\.)floors?": "layer, lower bound",
    r"doors?": "entry, boundary",
    r"houses?": "package",
    r"mend(s|ed|ing)?": "correct, repair",
    r"cures?|cured": "remedy",
    r"culprits?": "what is at fault, by its name",
    r"mute": "reports nothing",
    r"brakes?": "common factor",
    r"aloud": "logged, reported",
    r"told(?! apart)": "report, called with, says",
    r"(left|leaves?|leaving) behind": "the result of",
    r"(?<!word )(?<!\" )in words(?!:)": "a message, text",
    r"meets here": "settings",
    r"hearsay|gossip": "is propagated",
    r"duck typing": "type checks",
    r"go(es)? on|going on|went on": "continue, resume",
    r"anew": "again",
    r"for ever": "forever, without end",
    r"hand(s|ed|ing)? (in|on|over|it|them)(?!-)": "pass",
    r"suits?|suited": "fit",
    r"looked at": "evaluated, checked, searched",
    r"of one s own": "of your own",
    r"at hand": "current",
    r"as (it|they) stands?": "unchanged, in order",
}
BENCHMARKS = ("benchmarks/rows.py", "benchmarks/table.py")
# A lower bound of a time, by the rate of arithmetic or of memory: a table's own term.
ALLOWED = {r"(?<!\.)floors?": ("docs/benchmarks.md", "docs/benchmarks.py", *BENCHMARKS)}
FRACTION = re.compile(r"(?<![\w.:+)\]}])\.\d(?![f%]|e['\"}])")  # `.2f` is a format


@functools.cache
def _files() -> list[str]:
    kinds = ("*.py", "*.pyi", "*.jinja", "*.md", "*.ipynb")
    places = ["gdln_jax", "docs", "notebooks", "benchmarks"]
    found = [p for place in places for kind in kinds for p in (ROOT / place).rglob(kind)]
    found += [
        ROOT / name
        for name in (
            *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md"),
            *("pyproject.toml", "mkdocs.yml"),
        )
    ]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@functools.cache
def _text(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        text = "\n".join(
            "".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"
        )
    return text


@functools.cache
def _words(text: str) -> str:
    """`text` with the words of identifiers parted."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_|'", " ", text)


def _uses(text: str, phrase: str) -> list[str]:
    """The lines that have `phrase`."""
    pattern = re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE)
    if not pattern.search(_words(text)):  # few have any
        return []
    return [line.strip() for line in text.splitlines() if pattern.search(_words(line))]


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_private_language(phrase):
    found = {
        name: lines
        for name in _files()
        if name not in ALLOWED.get(phrase, ()) and (lines := _uses(_text(name), phrase))
    }
    assert not found, f"say {PHRASES[phrase]!r} instead"


def test_numbers_have_their_zero():
    found = {
        name: lines
        for name in _files()
        if not name.endswith(".jinja")  # classes of a style sheet
        and (lines := [line for line in _text(name).splitlines() if FRACTION.search(line)])
    }
    assert not found, "say 0.2, not .2"


def test_a_phrase_is_seen_wherever_it_stands():
    assert _uses("def _make_room(x):", r"rooms?")
    assert _uses("class RoomError(Exception): pass", r"rooms?")
    assert _uses("raise ValueError('mend it')", r"mend(s|ed|ing)?")
    assert not _uses("the amendment of mushrooms", r"mend(s|ed|ing)?")
    assert not _uses("jnp.floor(x)", r"(?<!\.)floors?")
    assert _uses("the Floor above", r"(?<!\.)floors?")
    assert FRACTION.search("below .7")
    assert not FRACTION.search("0.7, x[...].5, 1.5, f'{x:.2f} {x:+.1f}'")


# First words of docstrings of public functions. A verb that is missing is added.
VERBS = re.compile(
    "Absorb|Add|Align|Answer|Apply|Arrange|Bring|Build|Calculate|Call|Certify|Check|Choose|Cluster|"
    "Collect|Compare|Compute|Describe|Divide|Draw|Embed|Enumerate|Estimate|Evaluate|Find|Fit|Fold|"
    "Give|Group|Invert|Label|Learn|Let|Lift|List|Load|Make|Map|Match|Measure|Merge|Minimise|Name|"
    "Optimise|Pack|Predict|Print|Project|Race|Raise|Read|Recognise|Reconstruct|Reduce|Refer|"
    "Regress|Replace|Report|Reproduce|Return|Run|Save|Score|Set|Show|Solve|Split|Stack|Start|Take|"
    "Train|Transform|Turn|Undo|Write"
)


def _source(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _functions(node: ast.ClassDef | ast.FunctionDef) -> list[ast.FunctionDef]:
    """`node` itself, or the public methods of a class, without properties and overloads."""
    return [
        one
        for one in (node.body if isinstance(node, ast.ClassDef) else [node])
        if isinstance(one, ast.FunctionDef)
        and not one.name.startswith("_")
        and not re.search("property|overload", " ".join(map(ast.unparse, one.decorator_list)))
    ]


def _first_words() -> dict[str, str]:
    """First word of the docstring of each public function and method, read from the sources."""
    package = ROOT / "gdln_jax"
    words = {}
    for space in [*package.glob("[a-z]*/__init__.py"), package / "__init__.pyi"]:
        for line in ast.walk(ast.parse(space.read_text(encoding="utf-8"))):
            if not isinstance(line, ast.ImportFrom) or not str(line.module).startswith("gdln_jax."):
                continue
            public = {alias.name for alias in line.names if alias.name == alias.asname}
            for node in _source(str(line.module)).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in public:
                    for one in _functions(node):
                        text = ast.get_docstring(one) or "-"
                        words[f"{line.module}.{node.name}.{one.name}"] = text.split()[0].strip(",:")
    return words


def test_docstrings_of_functions_begin_with_a_verb():
    words = _first_words()
    assert not {name: word for name, word in words.items() if not VERBS.fullmatch(word)}
    assert len(words) > 250
