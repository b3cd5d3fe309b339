"""How far a fetch of jars is, for who waits at a terminal."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.2


@contextmanager
def showing(folder: Path, number: int, what: str, file: TextIO | None = None) -> Iterator[None]:
    """Draw a bar while jars arrive, where there is a terminal; a line in the log says it anyway.

    Args:
        folder: where they arrive, at whatever depth.
        number: how many there will be.
        what: is going on, for the reader.
        file: where to draw; by default stderr.
    """
    target = file or sys.stderr
    logger.info("%s (%s jars)", what, number)
    if not target.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    ended = threading.Event()
    with Progress(*columns, console=Console(file=target), transient=True) as progress:
        bar = progress.add_task(what, total=number)

        def follow() -> None:
            while not ended.wait(_LOOK_S):
                there = sum(1 for _ in folder.rglob("*.jar"))
                progress.update(bar, completed=min(there, number))

        watcher = threading.Thread(target=follow, name="millstream-fetch-bar", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
