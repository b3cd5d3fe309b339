"""The file and line of a declaration in the user's program, for error messages."""

from __future__ import annotations

import os
import sys
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def call_site() -> str:
    """Return the location of the innermost caller outside of Millstream.

    An example is `shop.py:31`. The path is relative if the file is below the working directory. The
    result is empty if all callers belong to Millstream.
    """
    frame: FrameType | None = sys._getframe(1)
    # Compare module names: the generated methods of dataclasses have no file.
    while frame is not None and _is_internal(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return "" if frame is None else f"{_relative_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def _is_internal(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


def _relative_path(file: str) -> str:
    try:
        relative = os.path.relpath(file)
    except ValueError:  # On Windows, the file is on a different drive from the working directory.
        return file
    return file if relative.startswith(os.pardir) else relative
