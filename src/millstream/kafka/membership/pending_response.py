"""Pending responses of the group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from millstream.kafka.kafka_python import ClientFuture


class ResultWaiter(Protocol):
    """Waits for results of calls on the event loop."""

    @property
    def alive(self) -> bool: ...
    def value_of(self, future: ClientFuture, timeout_ms: int) -> Any: ...


class PendingResponse:
    """The pending response to one request.

    Args:
        connections: waits for the response.
        future: the future of the response.
        timeout_ms: the maximum wait of `result`.
        convert: converts the client's errors to Millstream's.
    """

    def __init__(
        self,
        connections: ResultWaiter,
        future: ClientFuture,
        timeout_ms: int,
        convert: Callable[[Exception], Exception],
    ) -> None:
        self._connections = connections
        self._future = future
        self._timeout_ms = timeout_ms
        self._convert = convert

    @property
    def is_done(self) -> bool:
        """Whether `result` returns without waiting."""
        return self._future.is_done or not self._connections.alive

    def add_done_callback(self, call: Callable[[], object]) -> None:
        """Call `call` when the response arrives, on any thread."""
        self._future.add_both(lambda _: call())

    def result(self, within_ms: int | None = None) -> Any:
        """Wait for the response and return it.

        Args:
            within_ms: a shorter maximum wait.

        Raises:
            StreamsError: the request failed.
        """
        wait_ms = self._timeout_ms if within_ms is None else min(within_ms, self._timeout_ms)
        try:
            return self._connections.value_of(self._future, wait_ms)
        except Exception as error:
            raise self._convert(error) from error
