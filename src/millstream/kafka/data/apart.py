"""Calls of librdkafka that may never come back, made on a thread of their own.

`rd_kafka_send_offsets_to_transaction` heeds no timeout (librdkafka 5456, open with 2.16): where the
connection to the group's coordinator broke meanwhile, it waits for a change of any broker's state.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from millstream.clock import Clock, Deadline

#: After how long something is asked of the client that lets it look for its brokers.
_STIR_AFTER_MS: Final = 300
_STIR_MS: Final = 300


class ApartCall:
    """One call at a time, which is waited for in pieces.

    Args:
        client: whose calls.
        clock: where deadlines are measured.
    """

    def __init__(self, client: Producer, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pending: Future[None] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a call has not come back: then the client takes no other, not even a last one."""
        return self._pending is not None and not self._pending.done()

    def run(self, call: Callable[[], object], timeout_ms: int) -> None:
        """Make a call, or go on waiting for the one that has not come back.

        80 us more than the call itself.

        Raises:
            KafkaException: what the call has raised, or `_TIMED_OUT`.
        """
        if self._pending is None:
            self._pending = _begun(call)
        pending = self._pending
        deadline = Deadline(self._clock, timeout_ms)
        while not _is_done(pending, deadline.remaining_ms(_STIR_AFTER_MS)):
            if deadline.passed:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer yet"))
            # Where it fails, nobody is there to answer the call either.
            with contextlib.suppress(KafkaException):
                self._client.list_topics(timeout=deadline.remaining_ms(_STIR_MS) / 1_000)
        self._pending = None
        pending.result()


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
