"""Where in the user's program something was declared, so that errors can point at it."""

from __future__ import annotations

import os
import sys
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def call_site() -> str:
    """File and line of the innermost caller outside of Millstream, for example `shop.py:31`.

    The file is relative to the working directory if it is below it. Empty if all callers are
    Millstream's own.
    """
    frame: FrameType | None = sys._getframe(1)
    # The module's name, not the file's: generated methods of dataclasses have no file.
    while frame is not None and _is_ours(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return "" if frame is None else f"{_shortened(frame.f_code.co_filename)}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


def _shortened(file: str) -> str:
    try:
        below = os.path.relpath(file)
    except ValueError:  # on Windows: another drive than the working directory's
        return file
    return file if below.startswith(os.pardir) else below
