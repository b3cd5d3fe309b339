"""Calls beside the loop as they are made in an application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.operators.apart.calls import Call, Units
from millstream.operators.apart.coroutines import Coroutines
from millstream.operators.apart.landing import Landing
from millstream.operators.apart.threads import Threads


class RealApart:
    """On the process's event loop and on threads, for one task. It is `Apart`.

    Args:
        wake: ends the wait of the task's loop; called from any thread.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._landing = Landing(wake)

    def coroutines(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        most: int,
        timeout_ms: int | None,
    ) -> Units:
        """Units that await an `async def` function."""
        return Coroutines(function, arguments, most, timeout_ms, self._landing)

    def threads(
        self, function: Callable[..., Any], arguments: Callable[[Call], tuple[Any, ...]], most: int
    ) -> Units:
        """Units that call a plain function."""
        return Threads(function, arguments, most, self._landing)

    def tell(self) -> None:
        """Something has come to its end elsewhere."""
        self._landing.tell()

    def hear(self) -> None:
        """The loop is about to look."""
        self._landing.hear()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a call ends."""
        return self._landing.wait(timeout_ms)
