"""Storage and forwarding of the results of table operators.

With a record cache, the latest change of each key is emitted when the cache is flushed. Without
one, every change is emitted and logged (Kafka Streams' `TimestampedTupleForwarder`). A versioned
store is never cached. It may reject a change that is older than its history; a rejected change is
not emitted. For each accepted change, the store determines whether it is the latest of its key.
"""

from __future__ import annotations

from itertools import compress
from typing import Any

from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch
from millstream.operators.record_filters import with_key_bytes, with_keys
from millstream.operators.result_records import StoredVersions, emit_flushed
from millstream.operators.user_calls import serialize_each
from millstream.state.caches.record_cache import RecordCache
from millstream.state.keyvalue.key_value_table import TimestampedTable
from millstream.state.versioned.versioned_table import VersionedTable


class TableWriter:
    """Writes the results of one operator to its store and emits the changes.

    Args:
        skips_absent: whether to skip deletions of absent keys; effective only with
            `send_old_values`.
        has_old_values: whether batches include the replaced values, which are then not read from
            the store.
    """

    def __init__(
        self,
        context: OperatorContext,
        store: str,
        *,
        send_old_values: bool,
        skips_absent: bool = False,
        has_old_values: bool = False,
    ) -> None:
        self._context = context
        self._send_old_values = send_old_values
        self._skips_absent = skips_absent and send_old_values
        self._has_old_values = has_old_values
        self._table: TimestampedTable | VersionedTable = context.store(store)
        self.cache: RecordCache | None = self._table.cache
        if self.cache is not None:
            self.cache.forwards_changes = True
            self.cache.sends_old_values = send_old_values

    def write(self, batch: Batch, output: Output) -> None:
        """Store the values of a batch.

        Keys must not be None; a value of None deletes its key.
        """
        table = self._table
        key_bytes, kept = with_key_bytes(batch, table, self._context)
        if not key_bytes:
            return
        if isinstance(table, VersionedTable):
            self._write_versions(table, kept, key_bytes, output)
        elif self.cache is None:
            self._write_through(table, kept, key_bytes, output)
        else:
            self._write_cache(table, self.cache, kept, key_bytes)
            after = batch.order[-1] if batch.order else ()
            emit_flushed(self.cache.evict(), output, after)

    def flush(self) -> None:
        if self.cache is not None:
            emit_flushed(self.cache.flush(), self._context.output)

    def _write_through(
        self, table: TimestampedTable, batch: Batch, key_bytes: list[bytes], output: Output
    ) -> None:
        """Store, log and forward every change, with one read call and one write call."""
        failed, whole = self._context.failed, batch
        encoded, keep = serialize_each(
            table.encode_many, batch.values, lambda index, error: failed(whole, index, error)
        )
        if keep is not None:
            batch, key_bytes = batch.select(keep), list(compress(key_bytes, keep))
        old_values = batch.old_values if self._send_old_values else None
        if self._send_old_values and not self._has_old_values:
            old_values = _replaced(table, key_bytes, batch.values)
        if self._skips_absent and old_values is not None:
            changed = [
                new is not None or old is not None
                for new, old in zip(batch.values, old_values, strict=True)
            ]
            if not all(changed):
                batch, key_bytes = batch.select(changed), list(compress(key_bytes, changed))
                encoded = list(compress(encoded, changed))
                old_values = list(compress(old_values, changed))
        if not key_bytes:
            return
        table.write_encoded_many(key_bytes, encoded, batch.timestamps)
        # In this table, the changes are the latest, even if they were not in the parent table.
        output.emit(_as_latest(batch, old_values))

    def _write_cache(
        self, table: TimestampedTable, cache: RecordCache, batch: Batch, key_bytes: list[bytes]
    ) -> None:
        if self._context.may_continue:
            # If failing records may be dropped, the cache must not contain values that a flush
            # cannot serialize.
            failed, whole = self._context.failed, batch
            _, keep = serialize_each(
                table.encode_many, batch.values, lambda index, error: failed(whole, index, error)
            )
            if keep is not None:
                batch, key_bytes = batch.select(keep), list(compress(key_bytes, keep))
        entries, dirty, seq, skips = cache.entries, cache.dirty, cache.seq, self._skips_absent
        fetch = cache.load if skips else cache.overwrite
        values, timestamps = batch.values, batch.timestamps
        places, offsets = batch.input_positions()
        headers = batch.all_headers()
        for index, (key, place, offset) in enumerate(zip(key_bytes, places, offsets, strict=False)):
            entry = entries.get(key)
            if entry is None:
                cache.seq = seq
                entry = fetch(key)
                seq = cache.seq
            value = values[index]
            if skips and value is None and entry.value is None:
                continue
            entry.value = value
            entry.timestamp = timestamps[index]
            if not entry.dirty_seq:
                dirty.append(entry)
            seq += 1
            entry.dirty_seq = seq
            entry.place = place
            entry.offset = offset
            entry.headers = () if headers is None else headers[index]
        cache.seq = seq

    def _write_versions(
        self, table: VersionedTable, batch: Batch, key_bytes: list[bytes], output: Output
    ) -> None:
        changes = StoredVersions(batch)
        given = batch.old_values
        for index, key in enumerate(key_bytes):
            value, timestamp = batch.values[index], batch.timestamps[index]
            old = None
            try:
                if self._has_old_values:
                    old = None if given is None else given[index]
                elif self._send_old_values:
                    found = table.get(key)
                    old = None if found is None else found[0]
                if self._skips_absent and value is None and old is None:
                    continue
                valid_to = table.put(key, value, timestamp)
            except Exception as error:
                self._context.failed(batch, index, error)
                continue
            changes.add(index, value, old, timestamp, valid_to)
        changes.emit(output, self._send_old_values)


class TableOperator(Operator):
    """An operator that computes a table, which may have a store.

    The arguments are those of `TableWriter`.
    """

    def __init__(
        self,
        store: str | None,
        *,
        send_old_values: bool,
        skips_absent: bool = False,
        has_old_values: bool = False,
    ) -> None:
        self._store = store
        self._send_old_values = send_old_values
        self._skips_absent = skips_absent
        self._has_old_values = has_old_values
        self._writer: TableWriter | None = None

    @property
    def cached_store(self) -> str | None:
        return self._store

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        if self._store is not None:
            self._writer = TableWriter(
                context,
                self._store,
                send_old_values=self._send_old_values,
                skips_absent=self._skips_absent,
                has_old_values=self._has_old_values,
            )

    def store_and_forward(self, batch: Batch, output: Output) -> None:
        if self._writer is not None:
            self._writer.write(batch, output)
        else:
            output.emit(batch)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()


def _as_latest(batch: Batch, old_values: list[Any] | None) -> Batch:
    changed = batch.with_changes(batch.values, old_values)
    changed.is_latest = None
    return changed


def _replaced(table: TimestampedTable, key_bytes: list[bytes], values: list[Any]) -> list[Any]:
    """Return the value that each value replaces, if they are written in order."""
    distinct = list(dict.fromkeys(key_bytes))
    found = table.read_many(distinct)
    current = {
        key: None if value is None else value[0] for key, value in zip(distinct, found, strict=True)
    }
    replaced: list[Any] = []
    for key, value in zip(key_bytes, values, strict=True):
        replaced.append(current[key])
        current[key] = value
    return replaced


class TableSourceOperator(TableOperator):
    """Stores each record as the new value of its key (Kafka Streams' `KTableSource`)."""

    def __init__(self, store: str | None, *, send_old_values: bool = False) -> None:
        super().__init__(store, send_old_values=send_old_values)

    @property
    def only_updates_cache(self) -> bool:
        return self._writer is not None and self._writer.cache is not None

    def process(self, batch: Batch, output: Output) -> None:
        batch = with_keys(batch, self.context)
        if batch.keys:
            self.store_and_forward(batch, output)
