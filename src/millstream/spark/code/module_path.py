"""Where the driver finds modules, for the processes of Python that Spark starts beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from millstream.spark.code.user_modules import arrivals


def module_path() -> tuple[str, ...]:
    """The folders and archives of this process, in their order; the working directory by name."""
    return tuple(path or os.getcwd() for path in sys.path)


@contextmanager
def modules_of_the_driver(path: Sequence[str]) -> Iterator[None]:
    """Let `import` find what it finds in the driver, on the driver's machine.

    Folders of the process itself, with Spark's own modules, come first. Modules that travel as code
    are found before their files, with the driver's variables.

    Args:
        path: of the driver.
    """
    added = [folder for folder in dict.fromkeys(path) if folder not in sys.path]
    sys.path.extend(added)
    try:
        with arrivals():
            yield
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)
