"""Live pages: reduced dynamics that a browser integrates while one drags, in one HTML file."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from gdln_jax._reduction.reduction import Reduction, StrengthsLike

RECIPES = "routing", "sharing", "margin", "claims"


def live_page(
    reduction: Reduction,
    path: str | Path,
    *,
    b0: StrengthsLike = 0.05,
    tau: Mapping[str, float | int] | None = None,
    title: str = "Reduced dynamics",
    labels: Mapping[str, str] | None = None,
) -> Path:
    """Write a self-contained HTML page that integrates the reduced dynamics while one drags.

    Sliders move initial amplitudes and rates by pathway (with one pathway: by layer), the strengths
    of modes, and, where pathways share an output, the share of examples on which each is on. The
    page draws loss, strengths, shares and the graph, plays, and keeps its set-up in its address. It
    needs no server and no network, and takes 1.8 MB. Losses agree with `Reduction.solve` to 1e-6 of
    the first one.

    Args:
        reduction: in its diagonal form.
        path: the file; one that is there is replaced.
        b0: strengths at the start, as for `Reduction.quotient`: edges that start equal and always
            receive equal gradients are one unknown. Give edges that are to move apart different
            starts.
        tau: edge -> time constant.
        title: heading of the page.
        labels: node -> text; default its name.

    Returns:
        The path. Cost: a second or two of host code.

    Raises:
        ValueError: what is no reduction, a folder as `path`, a coupled reduction, bad `b0`, more
            unknowns than a page integrates (80), or Bokeh is not installed.
    """
    if not isinstance(reduction, Reduction):
        raise ValueError(
            f"reduction is a {type(reduction).__name__}; pass gdln.reduce(graph, data)."
        )
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; the page is a file, 'page.html'.")
    own = importlib.import_module("gdln_jax._live.own")
    page = _page()
    setup = own.of_reduction(reduction, b0, title=title, labels=labels or {}, tau=tau)
    return page.write_setup(setup, Path(path))


def recipe_page(name: str, path: Path) -> Path:
    """Write the page of a recipe among `RECIPES`.

    Raises:
        ValueError: Bokeh is not installed.
    """
    page = _page()
    families = importlib.import_module("gdln_jax._live.families")
    return page.write_setup(families.FAMILIES[name](), path)


def is_page(path: Path) -> bool:
    """Whether a file is a page that was written here."""
    return b'<meta name="generator" content="gdln_jax">' in path.read_bytes()[:2000]


def _page() -> ModuleType:
    try:
        importlib.import_module("bokeh")  # an optional dependency
    except ImportError as error:
        raise ValueError(
            "a live page needs the package bokeh: pip install 'gdln_jax[live]'."
        ) from error
    return importlib.import_module("gdln_jax._live.page")
