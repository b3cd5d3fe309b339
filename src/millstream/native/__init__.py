"""The C extension `millstream.native._native`, and its selection.

Wheels for Linux and macOS contain the extension, and an installation from source builds it if there
is a C compiler. Each of its functions and classes has an equivalent in Python, which is used where
the extension is missing.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The version of the extension that this version of Millstream needs. The versions must be equal,
#: because the two call each other with many arguments, which may change with each release. They
#: differ only in a checkout whose extension was not rebuilt.
EXTENSION_VERSION: Final = "0.1.0"

#: How to get the extension, for messages.
HOW_TO_INSTALL: Final = (
    "To get it, install Millstream's wheel for this platform; or install a C compiler and Python's "
    "headers (on Debian: gcc and python3-dev), and run `pip install --force-reinstall --no-deps "
    "--no-cache-dir --no-binary millstream millstream`, or `pip install --force-reinstall "
    "--no-deps .` in a checkout."
)

_LIBRARY: Final = "millstream.native.library"
_COMPILED: Final = "millstream.native._native"


def extension() -> ModuleType | str:
    """Return the extension, or a clause that explains why it is not available.

    An extension of another version is not used; a warning is logged once.
    """
    try:
        module = import_module(_LIBRARY)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name in {_COMPILED, _LIBRARY}:
            return f"the C extension {_why_not_built()}"
        return f"the C extension cannot be loaded: {error}"
    version = getattr(module, "VERSION", None)
    if version == EXTENSION_VERSION:
        return module
    reason = (
        f"the installed C extension has version {version or 'unknown'}, but this Millstream needs "
        f"{EXTENSION_VERSION}"
    )
    warn_once(reason)
    return reason


def loaded_version() -> str | None:
    """Return the version of the installed extension; None if there is none."""
    try:
        version: str | None = getattr(import_module(_LIBRARY), "VERSION", "unknown")
    except ImportError:
        return None
    return version


def compiled(pure: _Function, name: str, speedups: bool | None = None) -> _Function:
    """Return a function or class of the extension, or else `pure`.

    `pure` is returned if the extension is not available or `speedups` is False.
    """
    found = "" if speedups is False else extension()
    if isinstance(found, str):
        return pure
    function: _Function = getattr(found, name)
    return function


@lru_cache
def warn_once(reason: str) -> None:
    _log.warning(
        "Using Python instead of the C extension, because %s. Install Millstream again.", reason
    )


def _why_not_built() -> str:
    return unsupported() or "is not part of this installation"


def unsupported() -> str:
    """Return why the extension cannot run here, as a predicate; empty if it can.

    `setup.py` also calls this function, before any requirement is installed.
    """
    if sys.implementation.name != "cpython":
        return f"does not support {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "does not support free-threaded builds of Python"
    if sys.platform == "win32":
        return "does not support Windows"
    return ""
