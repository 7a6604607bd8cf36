"""SIGINT and SIGTERM as exceptions that are not lost, so that clean-up runs wherever they come."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

# Ctrl-C, `kill`, and a terminal that is closed.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_AGAIN = 0.02  # seconds until a lost exception is raised again
_CLEAN_UP = 2.0  # seconds in which a further signal does not interrupt the clean-up


@contextmanager
def raised() -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` on SIGINT, `SystemExit` (128 + number) on SIGTERM and SIGHUP.

    Yields the numbers of the signals that came. Nothing changes outside of the main thread, nor
    for a signal that is ignored or has a handler already.
    """
    raiser = _Raiser(sys.unraisablehook)
    plain = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    before = {n: handler for n in numbers if (handler := signal.getsignal(n)) in plain}
    if not before or threading.current_thread() is not threading.main_thread():
        yield raiser.came
        return
    for number in before:
        signal.signal(number, raiser.stop)
    sys.unraisablehook = raiser.lost
    try:
        yield raiser.came
    finally:
        sys.unraisablehook = raiser.hook
        if raiser.before:  # without its handler the timer would end the process
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in (before | raiser.before).items():
            signal.signal(number, handler)


@contextmanager
def leaving() -> Iterator[None]:
    """As `raised`; and after a signal the process ends here, with 128 + its number.

    Not by Python's teardown: XLA compiles in a thread of its own. It continues after an
    interruption, and would use the client that JAX takes away at exit, which is a segmentation
    fault.
    """
    with raised() as came:
        try:
            yield
        finally:
            if came:
                leave(128 + came[0])


class _Raiser:
    """Raises an exception for the first signal, and again where it was lost.

    Python prints an exception in a destructor or a callback and continues. JAX has a callback at
    each garbage collection, which is where a signal is raised that came during the collection.
    """

    def __init__(self, hook: Callable[[Any], object]) -> None:
        self.hook = hook
        self.came: list[int] = []
        self.last = -math.inf
        self.before: dict[int, Any] = {}

    def stop(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        self.came.append(number)
        if time.monotonic() - self.last > _CLEAN_UP:
            self.last = time.monotonic()
            self.act(frame)

    def act(self, frame: FrameType | None) -> None:
        """Raise the exception, but let JAX write an entry of its cache to the end."""
        if hasattr(signal, "setitimer") and _is_caching(frame):
            self.again()
            return
        number = self.came[0]
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def lost(self, unraisable: Any) -> None:
        """The hook for exceptions that Python cannot raise."""
        ours = self.came and isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit)
        if ours and hasattr(signal, "setitimer"):
            self.again()
        else:
            self.hook(unraisable)

    def again(self) -> None:
        """Act again, a little later."""
        previous = signal.signal(signal.SIGALRM, lambda _, frame: self.act(frame))
        self.before.setdefault(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)


def _is_caching(frame: FrameType | None) -> bool:
    """Whether JAX is writing an entry of its compilation cache, which would stay incomplete."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "put" and code.co_filename.endswith("lru_cache.py"):
            return True
        frame = frame.f_back
    return False


def leave(code: int) -> NoReturn:
    """End the process here, with its output written but without Python's teardown."""
    for name in (*_NAMES, "SIGALRM"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
