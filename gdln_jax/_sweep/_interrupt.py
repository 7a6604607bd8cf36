"""Ctrl-C during a sweep: the current chunk is finished and kept, then the sweep ends.

Python raises `KeyboardInterrupt` wherever it happens to be, and where that is a destructor or a
callback of a library it prints the exception and continues. A flag is not lost.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

# Set in a worker when the process that started it has been interrupted.
stopped = threading.Event()


@contextlib.contextmanager
def between_chunks() -> Iterator[Callable[[], None]]:
    """Hold the first Ctrl-C back until the function that this yields is called.

    A second one is raised at once. Nothing changes outside of the main thread, or where the
    program handles the signal in a way of its own.
    """
    asked = False

    def check() -> None:
        if asked or stopped.is_set():
            raise KeyboardInterrupt

    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not plain or threading.current_thread() is not threading.main_thread():
        yield check
        return

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            signal.default_int_handler(number, frame)
        asked = True

    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    check()
