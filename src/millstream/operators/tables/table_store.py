"""What table operators do with their results: keep them in a store, and hand on the changes.

With a record cache, changes go downstream when the cache is flushed, the last one for each key;
without, every one does, and is logged (Kafka Streams' `TimestampedTupleForwarder`). A versioned
store is never cached; it may refuse a change that is older than its history, which then goes
nowhere, and tells of the others whether they are the newest of their keys.
"""

from __future__ import annotations

from itertools import compress
from typing import Any

from millstream.operators.batch import Batch
from millstream.operators.calls import serialize_each
from millstream.operators.flushed import emit_flushed
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.tables.stored_versions import StoredVersions
from millstream.operators.usable import with_key_bytes
from millstream.state.caches.record_cache import RecordCache
from millstream.state.keyvalue.table import TimestampedTable
from millstream.state.versioned.table import VersionedTable


class TableWriter:
    """Writes the results of one operator to its store and emits the changes.

    Args:
        context: of the operator; its stores must be open.
        store: the name of the store.
        send_old_values: whether somebody downstream must know what a change replaces.
        skips_absent: whether a deletion of what is not there is left out; this can be told only
            with `send_old_values`.
        knows_old_values: whether the batches come with what they replace, so that it need not be
            read from the store.
    """

    def __init__(
        self,
        context: OperatorContext,
        store: str,
        *,
        send_old_values: bool,
        skips_absent: bool = False,
        knows_old_values: bool = False,
    ) -> None:
        self._context = context
        self._send_old_values = send_old_values
        self._skips_absent = skips_absent and send_old_values
        self._knows_old_values = knows_old_values
        self._table: TimestampedTable | VersionedTable = context.store(store)
        self._cache: RecordCache | None = self._table.cache
        if self._cache is not None:
            self._cache.forwards_changes = True
            self._cache.sends_old_values = send_old_values

    @property
    def is_cached(self) -> bool:
        """Whether changes wait in a cache."""
        return self._cache is not None

    def write(self, batch: Batch, output: Output) -> None:
        """Put the values of a batch under its keys, None of which is null.

        Args:
            batch: the changes; a value of None deletes.
            output: takes what is to go on.
        """
        table = self._table
        key_bytes, kept = with_key_bytes(batch, table, self._context)
        if not key_bytes:
            return
        if isinstance(table, VersionedTable):
            self._write_versions(table, kept, key_bytes, output)
        elif self._cache is None:
            self._write_through(table, kept, key_bytes, output)
        else:
            self._write_cache(table, self._cache, kept, key_bytes)
            after = batch.order[-1] if batch.order else ()
            emit_flushed(self._cache.evict(), output, after)

    def flush(self) -> None:
        """Hand on what the cache holds back."""
        if self._cache is not None:
            emit_flushed(self._cache.flush(), self._context.output)

    def _write_through(
        self, table: TimestampedTable, batch: Batch, key_bytes: list[bytes], output: Output
    ) -> None:
        """Every change is stored, logged and forwarded; reads and writes go in one call each."""
        failed, whole = self._context.failed, batch
        encoded, keep = serialize_each(
            table.encode_many, batch.values, lambda index, error: failed(whole, index, error)
        )
        if keep is not None:
            batch, key_bytes = batch.select(keep), list(compress(key_bytes, keep))
        old_values = batch.old_values if self._send_old_values else None
        if self._send_old_values and not self._knows_old_values:
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
        # What is stored here is the newest, whatever it was above.
        output.emit(_newest(batch, old_values))

    def _write_cache(
        self, table: TimestampedTable, cache: RecordCache, batch: Batch, key_bytes: list[bytes]
    ) -> None:
        if self._context.may_continue:
            # Where a failing record may be left out, the cache must not hold what no flush can
            # serialize.
            failed, whole = self._context.failed, batch
            _, keep = serialize_each(
                table.encode_many, batch.values, lambda index, error: failed(whole, index, error)
            )
            if keep is not None:
                batch, key_bytes = batch.select(keep), list(compress(key_bytes, keep))
        entries, dirty, seq, skips = cache.entries, cache.dirty, cache.seq, self._skips_absent
        fetch = cache.load if skips else cache.overwrite
        values, timestamps = batch.values, batch.timestamps
        places, offsets = batch.read_at()
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
                if self._knows_old_values:
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
    """An operator whose results are a table, which may be kept in a store.

    Args:
        store: the name of the store; None for none.
        send_old_values: whether somebody downstream must know what a change replaces.
        skips_absent: as for `TableWriter`.
        knows_old_values: as for `TableWriter`.
    """

    def __init__(
        self,
        store: str | None,
        *,
        send_old_values: bool,
        skips_absent: bool = False,
        knows_old_values: bool = False,
    ) -> None:
        self._store = store
        self._send_old_values = send_old_values
        self._skips_absent = skips_absent
        self._knows_old_values = knows_old_values
        self._writer: TableWriter | None = None

    @property
    def holds_back_in(self) -> str | None:
        return self._store

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        if self._store is not None:
            self._writer = TableWriter(
                context,
                self._store,
                send_old_values=self._send_old_values,
                skips_absent=self._skips_absent,
                knows_old_values=self._knows_old_values,
            )

    def hand_on(self, batch: Batch, output: Output) -> None:
        """Keep the changes if there is a store, and let them go downstream."""
        if self._writer is not None:
            self._writer.write(batch, output)
        else:
            output.emit(batch)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()


def _newest(batch: Batch, old_values: list[Any] | None) -> Batch:
    """The changes of a batch as the newest of their keys."""
    changed = batch.with_changes(batch.values, old_values)
    changed.is_latest = None
    return changed


def _replaced(table: TimestampedTable, key_bytes: list[bytes], values: list[Any]) -> list[Any]:
    """What each value replaces when all are written one after the other."""
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
