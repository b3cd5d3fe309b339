"""What a group's coordinator answers, for whoever goes on with other work until it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from millstream.kafka.kafka_python import ClientFuture


class Waiting(Protocol):
    """Waits for what comes of calls on the event loop."""

    @property
    def alive(self) -> bool: ...
    def value_of(self, future: ClientFuture, timeout_ms: int) -> Any: ...


class Answer:
    """The answer to one question, which was asked already.

    Args:
        link: where it was asked.
        future: what it comes to.
        timeout_ms: how long it is waited for at most, from the moment in which that begins.
        told: the client's error in Millstream's words.
    """

    def __init__(
        self,
        link: Waiting,
        future: ClientFuture,
        timeout_ms: int,
        told: Callable[[Exception], Exception],
    ) -> None:
        self._link = link
        self._future = future
        self._timeout_ms = timeout_ms
        self._told = told

    @property
    def is_there(self) -> bool:
        """Whether it need not be waited for."""
        return self._future.is_done or not self._link.alive

    def when_there(self, call: Callable[[], object]) -> None:
        """Call something then, on whatever thread."""
        self._future.add_both(lambda _: call())

    def take(self, within_ms: int | None = None) -> Any:
        """What was answered, waited for if need be.

        Args:
            within_ms: how long, if that is less than it is waited for anyway.

        Raises:
            StreamsError: what went wrong.
        """
        least_ms = self._timeout_ms if within_ms is None else min(within_ms, self._timeout_ms)
        try:
            return self._link.value_of(self._future, least_ms)
        except Exception as error:
            raise self._told(error) from error
