"""Calls of librdkafka that may never return, made on a thread of their own.

`rd_kafka_send_offsets_to_transaction` ignores its timeout (librdkafka 5456, open with 2.16): after
the connection to the group's coordinator broke, it waits until the state of any broker changes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.clock import Clock, Deadline

#: After how long another request is sent, for which the client connects to its brokers again.
_STIR_AFTER_MS: Final = 300
_STIR_MS: Final = 300


class ApartCall:
    """Makes the calls of one transaction on a thread, one at a time, and waits for them in steps.

    A result belongs to its request, and to the transaction in which the request was made: it is
    never returned for another request, nor after `forget`.

    Args:
        client: the producer that makes the calls.
        clock: for the timeouts.
    """

    def __init__(self, client: Producer, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pending: _Pending | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a call has not returned. The client accepts no other call meanwhile, not even an
        abort."""
        return self._pending is not None and not self._pending.future.done()

    def forget(self) -> None:
        """Drop the result of a call that was not waited for: its transaction ends without it."""
        self._pending = None

    def run(self, request: object, call: Callable[[], object], timeout_ms: int) -> None:
        """Make a call, or resume waiting for the same request.

        A call for another request waits until the pending one has returned.

        80 us more than the call itself.

        Args:
            request: the arguments of the call, compared with those of the pending one.
            call: makes the request.
            timeout_ms: for all of it. The call goes on after a timeout.

        Raises:
            KafkaException: the error of the call, or of the one before it, or `_TIMED_OUT`.
        """
        deadline = Deadline(self._clock, timeout_ms)
        if self._pending is not None and self._pending.request != request:
            self._wait(self._pending, deadline)
        if self._pending is None:
            self._pending = _Pending(request, _begun(call))
        self._wait(self._pending, deadline)

    def _wait(self, pending: _Pending, deadline: Deadline) -> None:
        while not _is_done(pending.future, deadline.remaining_ms(_STIR_AFTER_MS)):
            if deadline.passed:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer yet"))
            # If this request fails, no broker is there for the pending call either.
            with contextlib.suppress(KafkaException):
                self._client.list_topics(timeout=deadline.remaining_ms(_STIR_MS) / 1_000)
        self._pending = None
        pending.future.result()


@dataclass(frozen=True, slots=True)
class _Pending:
    """A call that was begun, and the request it was begun for."""

    request: object
    future: Future[None]


def _begun(call: Callable[[], object]) -> Future[None]:
    future: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    # Whoever ends does not wait for it.
    threading.Thread(target=run, name="send-offsets", daemon=True).start()
    return future


def _is_done(future: Future[None], within_ms: int) -> bool:
    with contextlib.suppress(TimeoutError, Exception):
        future.exception(within_ms / 1_000)
    return future.done()
