"""Measure the memory that each function of the extension keeps per record.

    PYTHONPATH=tests .venv/bin/python -m extension.leaks --records 1000000

Each load processes many records, with good and bad arguments. Growth is measured over the second
half, so that caches and buffers are full: resident memory, memory blocks of Python, and in a debug
build of Python all references. With `--bootstrap`, records are also written to a broker and read.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.kafka.speedups import Speedups, chosen_speedups
from millstream.native import extension
from millstream.state.windows.window_keys import SESSIONS, session_key

m: Any = extension()

#: The number of records per call.
BATCH: Final = 1_000
#: The maximum growth per record. A leaked object is a block of at least 16 bytes.
_MAX_BYTES: Final = 8.0
_MAX_OBJECTS: Final = 0.01
#: The growth that is no leak, however few the records: buffers and caches of the interpreter.
_ALLOWED_BYTES: Final = 4 << 20
_ALLOWED_OBJECTS: Final = 500

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Growth(NamedTuple):
    """What a load keeps per record; the references are None outside of a debug build.

    Args:
        counted: the records of the second half.
    """

    records: int
    counted: int
    bytes: float
    blocks: float
    references: float | None

    @property
    def is_leak(self) -> bool:
        objects = max(self.blocks, self.references or 0)
        return self.bytes > max(_MAX_BYTES, _ALLOWED_BYTES / self.counted) or objects > max(
            _MAX_OBJECTS, _ALLOWED_OBJECTS / self.counted
        )


def _state() -> tuple[int, int, int]:
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * _PAGE
    references: Callable[[], int] = getattr(sys, "gettotalrefcount", lambda: 0)
    return resident, sys.getallocatedblocks(), references()


def growth(load: Callable[[], int], records: int) -> Growth:
    """Run a load, which returns the number of its records, until it has processed `records`."""
    done, half, before = 0, 0, (0, 0, 0)
    # At least one call in each half.
    while done < records or done == half:
        done += load()
        if not half and done >= records / 2:
            half, before = done, _state()
    counted = done - half
    resident, blocks, references = (
        (new - old) / counted for new, old in zip(_state(), before, strict=True)
    )
    is_debug = hasattr(sys, "gettotalrefcount")
    return Growth(done, counted, resident, blocks, references if is_debug else None)


# --- loads without clients -----------------------------------------------------------------------


class _Cache:
    def __init__(self) -> None:
        self.entries, self.dirty, self.seq = m.EntryTable(), list[Any](), 0

    def load_many(self, keys: list[bytes]) -> None:
        new = m.new_entries(keys, 1, self.seq + 1)
        self.entries.update(zip(keys, new, strict=True))
        self.seq += len(keys)

    def on_added(self, entries: int, size_bytes: int) -> None: ...


class _Faulty:
    """An object whose conversions fail."""

    def _fail(self, *_: object) -> Any:
        raise ValueError([1])

    __index__ = __iter__ = __getitem__ = _fail

    def __len__(self) -> int:
        return 2


def _raise(*_: object) -> Any:
    raise ValueError([1])


def _interrupt(*_: object) -> Any:
    raise KeyboardInterrupt


def _keys(count: int = BATCH) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)]


def _updates(keys: list[bytes], **replaced: Any) -> tuple[Any, ...]:
    count = len(keys)
    columns = {
        "stored_keys": keys,
        "indices": None,
        "keys": keys,
        "values": [[number] for number in range(count)],
        "timestamps": [10**12 + number for number in range(count)],
        "places": repeat("place"),
        "offsets": range(2**40, 2**40 + count),
        "headers": [(("name", b"x"),)] * count,
        "at": array("q", [-1]),
    }
    return tuple({**columns, **replaced}.values())


def _bytes() -> int:
    values = _keys()
    m.with_times([*values[1:], None], range(2**40, 2**40 + BATCH))
    for value in values:
        m.murmur3_128(value)
    return BATCH


def _entries() -> int:
    keys = _keys()
    entries = m.new_entries(keys, 1, 2**40)
    for entry in entries:
        entry.change([1], 2**40, entry.used_seq, ("place",), 2**41, [1])
        entry.size, entry.value = 2**41, (2,)
    m.columns_of(m.sorted_by_change(entries))
    m.mark_flushed(entries, keys, 9)
    return BATCH


def _table() -> int:
    keys, table = _keys(), m.EntryTable()
    entries = m.new_entries(keys, 1, 1)
    table.update(zip(keys, entries, strict=True))
    for key in keys[::2]:
        table[key] = m.CachedEntry(key, b"stored", 1, 1)
        assert table.get(key) is table[key]
        assert key in table
    table.items(), table.keys(), table.values(), list(table)
    for key in keys[:100]:
        del table[key]
        table.pop(key, None)
    m.remove_entries(table, entries)
    return BATCH


def _order() -> int:
    order, entries = m.EvictionOrder(), m.new_entries(_keys(), 1, 1)
    order.add_many(entries)
    for entry in entries[::2]:
        entry.used_seq = -1 if entry.used_seq % 3 else 5_000
        order.add(entry)
    order.pop_unchanged(2_000), order.pop()
    order.drop_removed()
    order.pop_unchanged(1_000)
    return BATCH


def _index() -> int:
    keys = [session_key(b"%d" % (number % 9), number, number) for number in range(BATCH)]
    index = m.KeyIndex(SESSIONS, keys.copy)
    index.of_key(b"1", 0, 2**60)
    for key in keys:
        index.add(key)
    for key in keys:
        index.remove(key)
    index.of_key(b"2", 5, 2**70)
    return BATCH


def _fold(aggregator: Callable[..., Any], own: Any = None) -> Callable[[], int]:
    def run() -> int:
        cache = _Cache()
        updates = _updates(_keys(BATCH // 2) * 2)
        with suppress(KeyboardInterrupt):
            m.fold_entries(cache, updates, list, aggregator, own, lambda index, error: None)
        return BATCH

    return run


def _count() -> int:
    cache = _Cache()
    m.count_entries(cache, _updates(_keys(BATCH // 2) * 2))
    m.columns_of(m.sorted_by_change(cache.dirty))
    return BATCH


def _sessions(aggregator: Callable[..., Any], merger: Callable[..., Any]) -> Callable[[], int]:
    def run() -> int:
        cache, index, order = _Cache(), m.KeyIndex(SESSIONS, list), m.EvictionOrder()
        # New, growing, unchanged, late and merged sessions.
        times = [10**12 + (number % 7) * 4 + number // 50 * 100 for number in range(BATCH)]
        updates = _updates(_keys(BATCH // 4) * 4, timestamps=times)
        with suppress(KeyboardInterrupt):
            m.fold_sessions(
                cache, index, order, {}, updates, (10, 10, -1, -1, 5), list, aggregator, merger,
                lambda index, error: None, lambda *record: False,
            )  # fmt: skip
        return BATCH

    return run


def _first(key: Any, value: Any, aggregate: Any) -> Any:
    return [value]


def _failing_calls() -> list[Callable[[], Any]]:
    """Calls with invalid arguments, each of which raises an error."""
    entry, table, order = m.CachedEntry(b"k", None, 1, 1), m.EntryTable(), m.EvictionOrder()
    index, cache, bad = m.KeyIndex(SESSIONS, list), _Cache(), _Faulty()
    table[b"k"] = entry
    index.of_key(b"k", 0, 1)

    def fold(**replaced: Any) -> Any:
        updates = _updates(_keys(3), **replaced)
        return m.fold_entries(cache, updates, list, _first, None, _raise)

    def sessions(**replaced: Any) -> Any:
        resting: dict[bytes, Any] = {}
        parts = (_Cache(), m.KeyIndex(SESSIONS, replaced.pop("stored", list)), order, resting)
        times = replaced.pop("times", (10, 10, -1, -1, 5))
        functions = (replaced.pop("initializer", list), _first, _first, _raise, _raise)
        return m.fold_sessions(*parts, _updates(_keys(3), **replaced), times, *functions)

    return [
        lambda: m.murmur3_128("text"),
        lambda: m.with_times([b"a", "text"], [1, 2]),
        lambda: m.with_times([b"a", b"b"], [2**40, bad]),
        lambda: m.with_times(bad, []),
        lambda: m.with_times([b"a"], []),
        lambda: m.CachedEntry("text", None, 1, 1),
        lambda: m.CachedEntry(b"k", None, 1, bad),
        lambda: entry.change([1], bad, 1, [1], 1, [1]),
        lambda: entry.change(1),
        lambda: setattr(entry, "size", bad),
        lambda: delattr(entry, "size"),
        lambda: m.new_entries([b"a", "text"], 1, 1),
        lambda: m.columns_of([entry, bad]),
        lambda: m.sorted_by_change([entry, bad]),
        lambda: m.mark_flushed([entry, entry], [b"x", "text"], 1),
        lambda: m.mark_flushed([entry], [], 1),
        lambda: m.remove_entries(m.EntryTable(), [entry, bad]),
        lambda: m.remove_entries(bad, [entry]),
        lambda: table["text"],
        lambda: table[b"missing"],
        lambda: table.__setitem__(b"other", entry),
        lambda: table.update([(b"k", entry), bad]),
        lambda: table.update([(b"k", bad)]),
        lambda: table.pop(b"missing"),
        lambda: table.__delitem__(b"missing"),
        lambda: order.add(bad),
        lambda: (order.clear(), order.add_many([entry, bad])),
        lambda: order.pop_unchanged(bad),
        lambda: index.add(bad),
        lambda: index.of_key(b"k", bad, 1),
        lambda: m.KeyIndex(SESSIONS, _raise).of_key(b"k", 0, 1),
        lambda: m.KeyIndex(SESSIONS, lambda: [b"k" * 20, bad]).of_key(b"k", 0, 1),
        lambda: m.KeyIndex(bad, list),
        lambda: fold(timestamps=["text"] * 3),
        lambda: fold(offsets=range(2)),
        lambda: fold(keys=["key"]),
        lambda: fold(stored_keys=[b"a", "text", b"c"]),
        lambda: fold(indices=[0, -1, 1]),
        lambda: fold(places=bad),
        lambda: fold(at=5),
        lambda: m.fold_entries(cache, _updates(_keys(3)), _raise, _first, None, _raise),
        lambda: m.count_entries(cache, _updates(_keys(3))[:4]),
        lambda: sessions(timestamps=["text"] * 3),
        lambda: sessions(times=(1, 2, 3, 4, bad)),
        lambda: sessions(stored=_raise),
        lambda: sessions(initializer=_raise),
    ]  # fmt: skip


def _errors() -> int:
    calls = _failing_calls()
    for call in calls:
        try:
            call()
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
            continue
        raise AssertionError("a call with invalid arguments succeeded")
    return len(calls)


LOADS: Final[dict[str, Callable[[], int]]] = {
    "with_times, murmur3_128": _bytes,
    "CachedEntry, columns_of, mark_flushed": _entries,
    "EntryTable, remove_entries": _table,
    "EvictionOrder": _order,
    "KeyIndex": _index,
    "fold_entries": _fold(_first),
    "fold_entries, copies": _fold(lambda key, value, aggregate: value, list),
    "fold_entries, errors": _fold(_raise),
    "fold_entries, interrupted": _fold(_interrupt),
    "count_entries": _count,
    "fold_sessions": _sessions(_first, _first),
    "fold_sessions, errors": _sessions(_raise, _first),
    "fold_sessions, errors of mergers": _sessions(_first, _raise),
    "fold_sessions, interrupted": _sessions(_first, _interrupt),
    "invalid arguments": _errors,
}


# --- loads with clients --------------------------------------------------------------------------

_HEADERS: Final = [[("name", b"x"), ("other", None)]] * BATCH


def _columns() -> tuple[list[bytes], list[bytes], list[int]]:
    values = _keys()
    return values, values, list(range(10**12, 10**12 + BATCH))


def _purged(speedups: Speedups) -> Callable[[], int]:
    """Write records without a broker, and drop them."""
    settings = {"log_level": 0, "queue.buffering.max.messages": 2 * BATCH}
    producer, native = speedups.create(Producer, settings)

    def run() -> int:
        sent, error = native.produce_columns("t", 0, *_columns(), _HEADERS, 0)
        assert (sent, error) == (BATCH, 0)
        with suppress(ValueError):
            partitions: list[Any] = [0, _Faulty()]
            native.produce_columns("t", partitions, [b"k"] * 2, [b"v"] * 2, [1] * 2, None, 1)
        producer.purge()
        producer.poll(0)
        native.acked_offsets()
        native.take_failures()
        native.reset_deliveries()
        return BATCH

    return run


def _clients(speedups: Speedups) -> Callable[[], int]:
    """Create and drop clients; each counts as a batch, because their threads have large stacks."""

    def run() -> int:
        _, native = speedups.create(Producer, {"log_level": 0})
        native.produce_columns("t", 0, [b"k"], [b"v"], [1], None, 0)
        _, reader = speedups.create(Consumer, {"log_level": 0, "group.id": "g"})
        reader.open_queue()
        reader.forward("t", 1)
        reader.read_columns(10, 0)
        return 2 * BATCH

    return run


@contextmanager
def _on_broker(speedups: Speedups, bootstrap: str) -> Iterator[Callable[[], int]]:
    """Write records to a broker and read them."""
    topic, settings = "leaks", {"bootstrap.servers": bootstrap, "log_level": 0}
    producer, writer = speedups.create(Producer, settings)
    consumer, reader = speedups.create(Consumer, {**settings, "group.id": "leaks"})
    reader.open_queue()
    reader.forward(topic, 0)
    consumer.assign([TopicPartition(topic, 0, 0)])

    def run() -> int:
        assert writer.produce_columns(topic, 0, *_columns(), _HEADERS, 0) == (BATCH, 0)
        assert producer.flush(60) == 0
        taken = 0
        while taken < BATCH:
            runs, _ = reader.read_columns(BATCH, 1_000)
            taken += sum(len(each[3]) for each in runs)
        writer.acked_offsets()
        return BATCH

    yield run
    reader.close()
    consumer.close()


def measure(records: int, bootstrap: str | None) -> Iterator[tuple[str, Growth]]:
    """Run all loads; those with clients only if their library is usable."""
    for name, load in LOADS.items():
        yield name, growth(load, records)
    speedups = chosen_speedups(None)
    if speedups is not None:
        yield "produce_columns", growth(_purged(speedups), records)
        yield "clients", growth(_clients(speedups), records // 5)
        if bootstrap is not None:
            with _on_broker(speedups, bootstrap) as load:
                yield "produce_columns, read_columns", growth(load, records)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bootstrap", help="a broker with a topic `leaks`")
    parser.add_argument("--any-growth", action="store_true", help="always succeed")
    arguments = parser.parse_args()
    leaks = 0
    for name, found in measure(arguments.records, arguments.bootstrap):
        references = "" if found.references is None else f", {found.references:8.4f} references"
        is_leak = found.is_leak and not arguments.any_growth
        leak = "LEAK" if is_leak else "ok"
        leaks += is_leak
        print(  # noqa: T201
            f"{name:<38} {found.records:>9,} records: {found.bytes:8.3f} bytes, "
            f"{found.blocks:8.4f} blocks{references} per record: {leak}",
            flush=True,
        )
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
