"""docs/theory.md: what code cites is there, code cites nothing that a user does not have, and the
formulas of the page are those of the code.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from printed import shown

import gdln_jax as gdln

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
CITED = re.compile(r"\btheory(?:\.md)?#([\w-]+)")
# Notes of the project that are not shipped.
UNSHIPPED = re.compile(r"\b(?:BEYOND|SCIENCE|PITFALLS|FAULTS|REDESIGN)\b|\b(?:DESIGN|STYLE) \d")


@pytest.fixture(scope="module")
def texts():
    files = [
        path
        for place in ("gdln_jax", "docs", "notebooks", "tests", "benchmarks")
        for kind in ("*.py", "*.pyi", "*.md", "*.jinja", "*.ipynb", "*.json")
        for path in (ROOT / place).rglob(kind)
        if path.name not in ("test_theory.py", "test_words.py")
    ]
    files += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def _anchors(page: str) -> list[str]:
    """Anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings]


def test_every_citation_has_its_section(texts):
    anchors = _anchors(PAGE)
    assert len(set(anchors)) == len(anchors)
    cited = {name: set(CITED.findall(text)) for name, text in texts.items()}
    missing = {name: found - set(anchors) for name, found in cited.items() if found - set(anchors)}
    assert not missing
    assert {"certificate", "classes", "chains", "effort"} <= set.union(*cited.values())
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= set(anchors)


def test_every_erratum_that_is_cited_is_on_the_page(texts):
    rows = set(re.findall(r"^\| (E\d+) ", texts["docs/errata.md"], flags=re.MULTILINE))
    of_code = "".join(t for n, t in texts.items() if n.startswith("gdln_jax/") and ".py" in n)
    cited = set(re.findall(r"\bE\d{1,2}\b", of_code + PAGE))
    assert len(rows) == 28
    assert {"E4", "E8", "E17"} <= cited <= rows


def test_nothing_is_cited_that_a_user_does_not_have(texts):
    found = {name: UNSHIPPED.findall(text) for name, text in texts.items()}
    assert not {name: words for name, words in found.items() if words}
    assert UNSHIPPED.search("exact (SCIENCE 3)")
    assert UNSHIPPED.search("rules (BEYOND\n7.6)")


def test_the_blocks_of_the_page_print_what_it_shows():
    scope = shown(ROOT / "docs/theory.md")
    assert scope["gap"] < 1e-12


def test_the_constant_of_relu_units_is_the_mean_that_the_page_gives():
    a, p, q = np.random.default_rng(0).normal(size=(3, 400_000))
    p, q = np.abs(p), np.abs(q)
    m, c, root = q - p, q + p, np.sqrt(2)
    grown = np.sqrt(a**2 + 2 * p * q)
    values = (grown + c) ** 2 / 4 * (np.abs(root * a + m) / (root * grown + c)) ** root
    kappa = 0.661699  # tests/test_effective.py holds the package to it
    assert np.mean(values) == pytest.approx(kappa, abs=4 * np.std(values) / 400_000**0.5)
    assert f"= {kappa}" in PAGE


def test_chain_time_by_the_sum_over_roots_of_one():
    s, d, a0, a, depth = 1.3, 0.7, 0.02, 1.1, 3
    p = s / d

    def clock(y):
        roots = np.exp(2j * np.pi * np.arange(depth) / depth)
        total = -np.sum(roots**2 * np.log(1 - y / roots)).real / depth
        return y ** (2 - depth) / (2 - depth) + total

    y0, y = (a0 / p) ** (1 / depth), (a / p) ** (1 / depth)
    time = p ** (2 / depth - 1) / s * (clock(y) - clock(y0))
    assert float(gdln.exact.chain_mode_time(a, s, d, a0, depth)) == pytest.approx(time, rel=1e-12)


def test_curvature_of_a_chain_by_the_blocks_of_the_page():
    b, s, d = (
        np.array([[0.7, 0.3], [0.9, 0.5], [0.4, 1.1]]),
        np.array([1.2, 0.5]),
        np.array([1, 0.6]),
    )
    i, j = 1, 0
    res = d * b.prod(axis=0) - s

    def v(i, j):
        return np.array([b[k + 1 :, i].prod() * b[:k, j].prod() for k in range(3)])

    c = np.zeros((3, 3))
    for layer in range(3):
        for k in range(layer):
            between = b[k + 1 : layer, j].prod()
            c[layer, k] = res[i] * b[layer + 1 :, i].prod() * between * b[:k, i].prod()
        for k in range(layer + 1, 3):
            between = b[layer + 1 : k, i].prod()
            c[layer, k] = res[j] * b[k + 1 :, j].prod() * between * b[:layer, j].prod()
    own = [d[j] * np.outer(v(i, j), v(i, j)), d[i] * np.outer(v(j, i), v(j, i))]
    block = np.block([[own[0], c], [c.T, own[1]]])
    _, normal = gdln.exact.chain_sharpness(b, s, d)
    np.testing.assert_allclose(np.linalg.eigvalsh(block), normal, atol=1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_race_of_pathways_with_rate_factors(depth):
    kappa, u0, s, d = np.array([0.5, 0.2]), np.array([0.1, 0.15]), 1.2, 0.8
    clock, u = gdln.exact.pathway_race(kappa, u0, s, d, depth)
    if depth == 2:
        grown = u0 * np.exp(kappa * float(clock))
    else:
        grown = (u0 ** (2 - depth) - (depth - 2) * kappa * float(clock)) ** (1 / (2 - depth))
    np.testing.assert_allclose(u, grown, rtol=1e-10)
    assert np.sum(grown**depth) == pytest.approx(s / d, rel=1e-10)


def test_formulas_that_are_short():
    """Contexts, attention, recurrence, coherence, two-cycle and fold, as the page has them."""
    s, d, b0, c, t = 0.8, 2.0, 1e-3, 3, 3.0
    end = (c - 1) * s / d
    context = end / (1 - (1 - end / b0) * np.exp(-2 * s * t))
    assert float(gdln.exact.context_mode(t, s, d, b0, c)) == pytest.approx(context, rel=1e-12)

    r = (s / d) ** (1 / 3)
    nodes, weights = np.polynomial.legendre.leggauss(60)

    def primitive(x):
        u = (nodes + 1) / 2 * x / r
        return -1 / (s * x) + np.sum(weights * u / (1 - u**3)) * x / (2 * r) / (s * r)

    time = primitive(0.9 * r) - primitive(0.1)
    assert float(gdln.exact.attention_time(0.9 * r, s, d, 0.1)) == pytest.approx(time, rel=1e-10)

    strengths = np.array([0.2, 0.4, 0.7, 1.2])
    best = gdln.exact.rnn_minimum(strengths[:, None])
    powers = best.b[0] ** np.arange(4)
    gain = (strengths[::-1] @ powers) ** 2 / (powers @ powers)
    assert best.loss[0] == pytest.approx((strengths @ strengths - gain) / 2, rel=1e-12)

    theta, ratio = 2.0, 160 / 240
    square = theta**2
    seen = gdln.measures.coherence(theta, 160, 240)
    assert float(seen.seen) == pytest.approx(((1 + square) * (ratio + square)) ** 0.5 / theta)
    item = 1 - ratio * (1 + square) / (square * (square + ratio))
    feature = 1 - (ratio + square) / (square * (square + 1))
    assert float(seen.item_overlap) == pytest.approx(item)
    assert float(seen.feature_overlap) == pytest.approx(feature)

    low, high, *_ = gdln.exact.two_cycle(2.0, 0.5, 0.6)
    a = float(high) * 0.6 * 0.5
    assert a + 1 / a == pytest.approx(1 + 0.6 * 2.0)
    assert float(low) == pytest.approx(1 / (a * 0.6 * 0.5))
    decay, product = gdln.exact.decay_fold(2.0, 0.5, 4)
    assert float(product) == pytest.approx(2 * 2.0 / (6 * 0.5))
    assert float(decay) == pytest.approx(float(product) ** 0.5 * 2.0 * 4 / 6)
