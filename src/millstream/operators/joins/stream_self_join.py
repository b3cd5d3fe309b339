"""The join of a stream with itself in one store (Kafka Streams' KStreamKStreamSelfJoin)."""

from __future__ import annotations

from typing import Any

from millstream.operators.batch import Batch
from millstream.operators.joins.stream_join import Found, StreamJoiner, encoded_keys, readable
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.results import Results
from millstream.operators.usable import INCOMPLETE
from millstream.record import UNKNOWN
from millstream.state.windows.window_table import WindowTable, WindowValue


class StreamSelfJoinOperator(Operator):
    """Joins the records of a stream with those of the same stream, kept in one store.

    The results and their order are those of a join of two streams that are equal.

    Args:
        store: the window store.
        before_ms: how much earlier than a record on the left its partner may be.
        after_ms: how much later.
        retention_ms: how long the store keeps records.
        joiner: the user's.

    Attributes:
        other_table: where partners are looked for.
        reaches: how much earlier and later than a record, in milliseconds.
        needs_partners: whether nothing comes of a record that finds none.
    """

    needs_partners = False

    def __init__(
        self, store: str, before_ms: int, after_ms: int, retention_ms: int, joiner: StreamJoiner
    ) -> None:
        self.own_store = self.other_store = store
        self._before = before_ms
        self._after = after_ms
        self.reaches = ((before_ms, after_ms), (after_ms, before_ms))
        self._retention_ms = retention_ms
        self._join = joiner.seen_from(left=True)
        self._stream_time = UNKNOWN
        self.other_table: WindowTable

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self.other_table = context.store(self.own_store)

    def process(self, batch: Batch, output: Output) -> None:
        results = Results(batch)
        for index, key_bytes in enumerate(encoded_keys(self.other_table, batch)):
            self.join(results, index, key_bytes)
        results.emit(output)

    def join(
        self, results: Results, index: int, key_bytes: Any, found: Found | None = None
    ) -> None:
        """Add what a record is joined to.

        Args:
            results: of the batch where the record is.
            index: which one it is.
            key_bytes: its entry in `encoded_keys`.
            found: its partners; None to look for them.
        """
        batch = results.batch
        value = batch.values[index]
        if key_bytes is None or value is None:
            self.context.dropped(1, INCOMPLETE)
            return
        try:
            self._join_all(results, index, key_bytes, value, found)
        except Exception as error:
            self.context.failed(batch, index, error)

    def _join_all(
        self, results: Results, index: int, key_bytes: Any, value: Any, found: Found | None
    ) -> None:
        key, join = results.batch.keys[index], self._join
        timestamp = results.batch.timestamps[index]
        with_itself = join(key, value, value)
        self._stream_time = max(self._stream_time, timestamp)
        # A record that the store would not take is not joined with itself either.
        waits = timestamp >= self._stream_time - self._retention_ms
        if key_bytes.__class__ is not bytes:
            raise key_bytes
        for start, other, _ in self._partners(0, key_bytes, timestamp, found):
            results.add(index, key, join(key, value, other), max(timestamp, start))
        for start, other, _ in self._partners(1, key_bytes, timestamp, found):
            if waits and start > timestamp:
                results.add(index, key, with_itself, timestamp)
                waits = False
            results.add(index, key, join(key, other, value), max(timestamp, start))
        if waits:
            results.add(index, key, with_itself, timestamp)

    def _partners(
        self, reach: int, key_bytes: bytes, timestamp: int, found: Found | None
    ) -> list[WindowValue]:
        if found is not None:
            return readable(found[reach])
        before, after = self.reaches[reach]
        # Follows Kafka Streams: what ends before the epoch ends there.
        last = max(0, timestamp + after)
        return self.other_table.fetch_between(key_bytes, timestamp - before, last)
