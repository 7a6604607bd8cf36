"""`gdln inspect`: your own checkpoints and data, and one page of answers."""

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gdln_jax import _machine
from gdln_jax._cli import console
from gdln_jax._files import UnwritableError, expanded, refuse_foreign, writable, write
from gdln_jax._version import __version__

if TYPE_CHECKING:
    from gdln_jax import GatedData, relu

PAGE = "inspect.html"
_TITLE = "A trained network, as gdln_jax sees it"


def inspect(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHECKPOINTS", help="A folder of checkpoints, files in order, or one file."
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Training data: .csv, .npz (x and y), .nc, .safetensors."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the page.")] = Path(
        "out", "inspect"
    ),
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Column (repeatable) or array to learn."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Columns (repeatable) or array to learn from."),
    ] = None,
    one_hot: Annotated[
        bool, typer.Option("--one-hot", help="The target is a class; a column for each.")
    ] = False,
    layers: Annotated[
        list[str] | None,
        typer.Option("--layer", metavar="NAME", help="Layers to read, first to last; repeatable."),
    ] = None,
    orientation: Annotated[
        Literal["out_in", "in_out"] | None,
        typer.Option(metavar="out_in|in_out", help="Order of the axes of square weights."),
    ] = None,
    slope: Annotated[float, typer.Option(help="Slope of the leaky ReLU.")] = 0.0,
    learning_rate: Annotated[
        float | None, typer.Option(help="Flow time per step, if it cannot be inferred.")
    ] = None,
    std: Annotated[
        float | None, typer.Option(help="Scale of the initial weights, if step 0 is missing.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="A unit is on above this share of its largest pre-activation.")
    ] = 0.0,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Examples not used in training.")
    ] = None,
) -> None:
    """Answer from checkpoints and data: which gates, how many, when, rich or lazy.

    Writes DIR/inspect.html, one self-contained page with pictures, what was assumed, and what could
    not be answered.
    """
    try:
        page = expanded(out) / PAGE
        foreign = page.is_file() and _TITLE.encode() not in page.read_bytes()[:20_000]
        refuse_foreign([page] * foreign)
        _machine.prepare()
        from gdln_jax import relu

        def read(file: Path) -> "GatedData":
            file = expanded(file)
            return relu.read_data(file, target=target, inputs=inputs, one_hot=one_hot)

        places = [expanded(place) for place in checkpoints]
        past = relu.history(
            places if len(places) > 1 else places[0],
            layers=layers or None,
            orientation=orientation,
            slope=slope,
        )
        trained, tested = read(data), None if test is None else read(test)
        with writable(page.parent):
            found = relu.explain(
                past,
                trained,
                learning_rate=learning_rate,
                std=std,
                threshold=threshold,
                test=tested,
            )
            write(page, _rendered(found, places))
    except (ValueError, UnwritableError) as error:
        raise typer.BadParameter(str(error)) from error
    for question, answer in found.answers():
        typer.echo(f"{question}? {answer}")
    for question, reason in found.unanswered:
        typer.echo(f"open: {question}? {reason}")
    console.print_paths([page])


def _rendered(found: "relu.Explanation", places: list[Path]) -> str:
    """The page, with its picture inside."""
    import jinja2

    from gdln_jax import plot

    picture = io.BytesIO()
    plot.explanation(found).savefig(picture, format="png", dpi=160)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gdln_jax._cli.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("inspect.html.jinja").render(
        title=_TITLE,
        network=repr(found.history),
        data=repr(found.data),
        places=[str(place) for place in places],
        picture="data:image/png;base64," + base64.b64encode(picture.getvalue()).decode("ascii"),
        found=found,
        here=f"gdln_jax {__version__}",
        moment=_machine.moment()[:16].replace("T", " "),
    )
