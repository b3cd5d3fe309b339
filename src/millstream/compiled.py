"""What `millstream-speedups` has in C, where that is installed: it does the same."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(pure: _Function, name: str) -> _Function:
    """The function of that name in the extension; without it, or in an older one, `pure`.

    Args:
        pure: does the same in Python.
        name: the function's name.
    """
    try:
        module = import_module("millstream_speedups")
    except ImportError:
        return pure
    found: _Function = getattr(module, name, pure)
    return found
