"""Loggers of loguru, which travel with those of their sinks that can be pickled.

A logger of loguru is an object with its sinks, where a logger of `logging` is pickled by its name.
Files, queues and handlers of `logging` stay in the driver, as the targets of its loggers do. A
logger without another sink writes to the worker's stderr.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_Reduced = tuple[Any, ...]


def has_sinks(thing: object) -> bool:
    """Whether a thing is what the loggers of loguru share."""
    kind = type(thing)
    return (kind.__module__, kind.__qualname__) == ("loguru._logger", "Core")


def reduce_sinks(core: Any, is_picklable: Callable[[object], bool]) -> _Reduced:
    """How to recreate what loggers share, without the sinks that cannot be pickled.

    Args:
        core: what `has_sinks` is true of.
        is_picklable: of a sink.
    """
    state = dict(core.__getstate__())
    sinks = state.get("handlers", {})
    state["handlers"] = {number: each for number, each in sinks.items() if is_picklable(each)}
    return _recreated, (type(core), state, bool(sinks))


def _recreated(kind: Any, state: dict[str, Any], had_sinks: bool) -> Any:
    core = kind.__new__(kind)
    core.__setstate__(state)
    if had_sinks and not core.handlers:
        # The lowest level of the driver's sinks is among the state.
        core.handlers = dict(importlib.import_module("loguru").logger._core.handlers)
    return core
