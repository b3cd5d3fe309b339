"""Background activity during a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def background(function: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Call a function after each pause, on its own thread, until the block ends.

    Raises:
        BaseException: the error of a call, after which the function is not called again. Not
            raised if the block itself failed.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            function()

    with ThreadPoolExecutor(1, "meanwhile") as executor:
        background = executor.submit(repeat)
        try:
            yield
        finally:
            over.set()
    background.result()
