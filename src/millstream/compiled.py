"""The C extension `millstream-speedups`, where it is installed and of the right version."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

_log = logging.getLogger(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: The one version of the extension that this version of Millstream works with: its own. The two
#: call each other with many arguments, which may change with each release.
EXTENSION_VERSION: Final = "0.1.0"

_MODULE: Final = "millstream_speedups"


def extension() -> ModuleType | str:
    """The extension, or the reason why there is none, as a clause.

    An extension of another version is not used; a warning is logged once.
    """
    try:
        module = import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name == _MODULE:
            return "millstream-speedups is not installed"
        return f"millstream-speedups cannot be loaded: {error}"
    except ImportError as error:
        return f"millstream-speedups cannot be loaded: {error}"
    version = getattr(module, "VERSION", None)
    if version == EXTENSION_VERSION:
        return module
    reason = (
        f"the installed millstream-speedups is of {version or 'an older version'}, and this "
        f"Millstream needs {EXTENSION_VERSION}"
    )
    warn_once(reason)
    return reason


def compiled(pure: _Function, name: str, speedups: bool | None = None) -> _Function:
    """The function or class of that name in the extension; without the extension, `pure`.

    Args:
        pure: does the same in Python.
        name: the name in the extension.
        speedups: the setting `speedups`; False keeps to Python.
    """
    found = "" if speedups is False else extension()
    if isinstance(found, str):
        return pure
    function: _Function = getattr(found, name)
    return function


@lru_cache
def warn_once(reason: str) -> None:
    """Log that the installed extension is not used."""
    _log.warning(
        "Python is used in place of the C extension, because %s. Install both packages in the same "
        "version.",
        reason,
    )
