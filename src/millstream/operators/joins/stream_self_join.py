"""The join of a stream with itself in one store (Kafka Streams' KStreamKStreamSelfJoin)."""

from __future__ import annotations

from typing import Any

from millstream.operators.batch import Batch
from millstream.operators.joins.stream_join import StreamJoiner, encoded_keys
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.results import Results
from millstream.operators.usable import INCOMPLETE
from millstream.record import UNKNOWN
from millstream.state.windows.window_table import WindowTable


class StreamSelfJoinOperator(Operator):
    """Joins the records of a stream with those of the same stream, kept in one store.

    The results and their order are those of a join of two streams that are equal.

    Args:
        store: the window store.
        before_ms: how much earlier than a record on the left its partner may be.
        after_ms: how much later.
        retention_ms: how long the store keeps records.
        joiner: the user's.
    """

    def __init__(
        self, store: str, before_ms: int, after_ms: int, retention_ms: int, joiner: StreamJoiner
    ) -> None:
        self.own_store = store
        self._before = before_ms
        self._after = after_ms
        self._retention_ms = retention_ms
        self._join = joiner.seen_from(left=True)
        self._stream_time = UNKNOWN
        self._table: WindowTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._table = context.store(self.own_store)

    def process(self, batch: Batch, output: Output) -> None:
        results = Results(batch)
        for index, key_bytes in enumerate(encoded_keys(self._table, batch)):
            self.join(results, index, key_bytes)
        results.emit(output)

    def join(self, results: Results, index: int, key_bytes: Any) -> None:
        """Add what a record is joined to.

        Args:
            results: of the batch where the record is.
            index: which one it is.
            key_bytes: its entry in `encoded_keys`.
        """
        batch = results.batch
        value = batch.values[index]
        if key_bytes is None or value is None:
            self.context.dropped(1, INCOMPLETE)
            return
        try:
            self._find_partners(results, index, key_bytes, value, batch.timestamps[index])
        except Exception as error:
            self.context.failed(batch, index, error)

    def _find_partners(
        self, results: Results, index: int, key_bytes: Any, value: Any, timestamp: int
    ) -> None:
        key, join, fetch = results.batch.keys[index], self._join, self._table.fetch_between
        with_itself = join(key, value, value)
        self._stream_time = max(self._stream_time, timestamp)
        # A record that the store would not take is not joined with itself either.
        waits = timestamp > self._stream_time - self._retention_ms + 1
        if key_bytes.__class__ is not bytes:
            raise key_bytes
        # Follows Kafka Streams: what ends before the epoch ends there.
        last = max(0, timestamp + self._after)
        for start, other, _ in fetch(key_bytes, timestamp - self._before, last):
            results.add(index, key, join(key, value, other), max(timestamp, start))
        last = max(0, timestamp + self._before)
        for start, other, _ in fetch(key_bytes, timestamp - self._after, last):
            if waits and start > timestamp:
                results.add(index, key, with_itself, timestamp)
                waits = False
            results.add(index, key, join(key, other, value), max(timestamp, start))
        if waits:
            results.add(index, key, with_itself, timestamp)
