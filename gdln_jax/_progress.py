"""How far a run is: a bar on the error stream of a terminal or a notebook, after two seconds.

A compiled program says how far it is by a host callback, which keeps it out of JAX's persistent
cache. So a callback is compiled in only where somebody looks and no such cache is set up; with a
cache the bar says what is done (compiling, running) and for how long. Nothing is shown, and the
program is the plain one, in scripts whose error stream is no terminal, and under `jit`, `vmap` and
`grad`.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array
from rich.console import Console
from typing_extensions import TypeAliasType

from gdln_jax._checks.types import ArrayLike

# Called with the fraction done, in [0, 1], and what is done now.
Report = Callable[[float, str], None]
Progress = TypeAliasType("Progress", bool | Report)

DELAY = 2.0  # seconds: what ends sooner shows nothing
UNKNOWN = -np.inf  # a loss
REPORTS = 50  # of a run at most; each costs 0.15 ms
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"

_display = threading.Lock()  # held by the one bar that is shown
_numbers = itertools.count(1)
_listening: dict[int, Callable[[float, float], None]] = {}  # runs that are on, by number


class Reporter(eqx.Module):
    """What a program calls to report; the run is a leaf, so that every run has one program."""

    run: Array

    def __call__(self, due: ArrayLike, done: ArrayLike, loss: ArrayLike = UNKNOWN) -> None:
        """Report, where it is due, how much is done, of the run's total, and the loss if known."""

        def report(*found: Array) -> None:
            # As one array: what costs is to read an array, more than the call.
            jax.debug.callback(_hear, jnp.stack([jnp.asarray(x, float) for x in found]))

        jax.lax.cond(due, report, lambda *_: None, self.run, jnp.asarray(done), jnp.asarray(loss))


def _hear(found: ArrayLike) -> None:
    run, done, loss = np.asarray(found).tolist()
    if listener := _listening.get(int(run)):
        listener(done, loss)


@contextmanager
def reporting(
    what: str, total: ArrayLike, unit: str, progress: Progress
) -> Iterator[Reporter | None]:
    """Show how far a run is while the body lasts; yield what its program has to report to.

    Args:
        what: the run, in a word.
        total: what there is to do, in `unit`.
        unit: "step" or "t".
        progress: True: a bar where somebody looks; False: nothing; or a function to call. Under
            `jit`, `vmap` and `grad` always nothing.

    Yields:
        A `Reporter`, or None where no callback may be compiled in.
    """
    _check(progress)
    if progress is False or is_traced():
        yield None
        return
    with shown(what, progress) as report:
        if report is None:
            yield None
            return
        with _heard(report, float(np.asarray(total)), unit) as run:
            cached = jax.config.values["jax_compilation_cache_dir"] is not None
            yield Reporter(jnp.asarray(run)) if callable(progress) or not cached else None
            jax.effects_barrier()  # late reports


def _check(progress: object) -> None:
    """Raise `ValueError` for what is neither a bool nor a function."""
    if not isinstance(progress, bool) and not callable(progress):
        raise ValueError(
            f"progress is {progress!r}; pass True for a bar in terminals and notebooks, False for "
            "none, or a function of the fraction done and a text."
        )


def is_traced() -> bool:
    """Whether any transformation of JAX is on, also one that no argument shows."""
    here = get_opaque_trace_state(convention="flax")
    with jax.core.eval_context():
        return here != get_opaque_trace_state(convention="flax")


@contextmanager
def _heard(report: Report, total: float, unit: str) -> Iterator[int]:
    """The number under which reports are passed on: of the program, before that of the compiler."""
    run, doing, known = next(_numbers), "", ""

    def listener(done: float, loss: float) -> None:
        nonlocal doing, known
        known = known if loss == UNKNOWN else f", loss {loss:.4g}"
        doing = f"{unit} {done:.4g} of {total:.4g}{known}"
        report(min(done / total, 1.0), doing)

    def compiler(event: str, duration_secs: float, **_: object) -> None:
        nonlocal doing
        del duration_secs
        phase = {_TRACED: "compiling", _COMPILED: "running"}.get(event)
        if phase is not None and phase != doing and not doing.startswith(unit):
            doing = phase
            report(0.0, phase)

    _listening[run] = listener
    jax.monitoring.register_event_duration_secs_listener(compiler)
    try:
        yield run
    finally:
        jax.monitoring.unregister_event_duration_listener(compiler)
        del _listening[run]


@contextmanager
def shown(what: str, progress: Progress, delay: float | None = None) -> Iterator[Report | None]:
    """What to report to: the function that was given, that of a bar after `delay`, or None.

    There is one display at a time: what runs within the body shows none of its own.

    Raises:
        ValueError: for what is neither a bool nor a function.
    """
    _check(progress)
    with alone() as free:
        if callable(progress):
            yield progress
            return
        console = watched() if progress and free else None
        delay = DELAY if delay is None else delay
        with nullcontext() if console is None else _bar(what, console, delay) as report:
            yield report


@contextmanager
def alone() -> Iterator[bool]:
    """Whether there is no display around the body, in which there will be none but its own."""
    free = _display.acquire(blocking=False)
    try:
        yield free
    finally:
        if free:
            _display.release()


@contextmanager
def _bar(what: str, console: Console, delay: float) -> Iterator[Report]:
    """A bar after `delay` seconds, and the function that moves it."""
    from rich.progress import (  # noqa: PLC0415  a quarter of the import, where somebody looks only
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[doing]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    display = Progress(
        *columns,
        console=console,
        transient=True,
        expand=True,
        refresh_per_second=4,
        speed_estimate_period=1e9,  # of all that ended, not of the last seconds
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = display.add_task(what, total=1.0, doing="")
    timer = threading.Timer(delay, display.start)
    timer.daemon = True
    if delay:
        timer.start()
    else:
        display.start()
    try:
        yield lambda fraction, doing: display.update(task, completed=fraction, doing=doing)
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        display.stop()


def watched() -> Console | None:
    """The console on the error stream if that is a terminal or a notebook, else None.

    rich's variable TTY_INTERACTIVE=0 says that nobody looks, as where a notebook is run as a test.
    """
    console = Console(stderr=True)
    if console.is_jupyter:
        # Without widgets: a line that returns to its start, of constant length and without colours,
        # since frontends overwrite it character by character.
        console = Console(
            file=sys.stderr, force_terminal=True, force_jupyter=False, color_system=None, width=100
        )
    return console if console.is_terminal and console.is_interactive else None
