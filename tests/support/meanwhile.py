"""Something that goes on beside what a test does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def meanwhile(call: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Call something after each pause, on a thread of its own, until the block is left.

    Raises:
        BaseException: what a call raised, which was the last one then; unless the block itself
            failed.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(pause_s):
            call()

    with ThreadPoolExecutor(1, "meanwhile") as executor:
        repeating = executor.submit(repeat)
        try:
            yield
        finally:
            over.set()
    repeating.result()
