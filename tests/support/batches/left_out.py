"""Records on which something failed, for tests that compare what two runs have left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.processor.handlers import CONTINUE, ErrorContext, HandlerResponse
from millstream.record import Record


class LeftOut:
    """A processing exception handler that leaves such records out, and remembers them.

    Args:
        told: what is to be remembered of an error.
    """

    def __init__(self, told: Callable[[Exception], Any]) -> None:
        self._told = told
        self.seen: list[tuple[Any, ...]] = []

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        self.seen.append((context.topic, context.offset, record.value, self._told(error)))
        return CONTINUE
