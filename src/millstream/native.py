"""Access to the C extension `millstream-speedups`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The version of the extension that this version of Millstream needs. The versions must be equal,
#: because the two call each other with many arguments, which may change with each release.
EXTENSION_VERSION: Final = "0.1.0"

_MODULE: Final = "millstream_speedups"


def extension() -> ModuleType | str:
    """Return the extension, or a clause that explains why it is not available.

    An extension of another version is not used; a warning is logged once.
    """
    try:
        module = import_module(_MODULE)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == _MODULE:
            return "millstream-speedups is not installed"
        return f"millstream-speedups cannot be loaded: {error}"
    version = getattr(module, "VERSION", None)
    if version == EXTENSION_VERSION:
        return module
    reason = (
        f"the installed millstream-speedups has version {version or 'unknown'}, but this "
        f"Millstream needs {EXTENSION_VERSION}"
    )
    warn_once(reason)
    return reason


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
        "Using Python instead of the C extension, because %s. Install both packages in the same "
        "version.",
        reason,
    )
