"""Goal: a window or session store matches a dict with retention, with any layers; after a crash, it
matches its changelog.

Method: random operations on a real store (RocksDB or in memory, with or without a cache and recent
entries in memory) and on a dict with a separate implementation of the retention rules. `StoreModel`
has the events of the task. Cached entries stay visible while they are in the cache, so cached
stores have an unlimited retention, and the others a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from support.tasks.store_model import (
    LARGE_BUDGET,
    SOURCE,
    LoggedRecord,
    StoreModel,
    argument_lists,
    run_model,
)

from millstream.record import ValueAndTimestamp
from millstream.serdes import BYTES, JSON, LONG
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.caches.cache_entries import FlushedChanges
from millstream.state.task_stores import TaskStores
from millstream.state.windows.window_keys import session_key, session_of, window_key
from millstream.windowed import MAX_TIME_MS, Window, Windowed

SIZE_MS = 10
FOREVER_MS = 10_000_000

# Keys that contain the bytes of a timestamp or sequence number must not confuse the store.
keys = st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"a" + bytes(8), b"a" + bytes(12)])
times = st.one_of(
    st.integers(0, 6).map(lambda n: n * 30_000),
    st.integers(0, 200_000),
    st.sampled_from([59_999, 60_000, 60_001, 119_999, 120_000]),
)
numbers = st.integers(0, 5)

#: A key, the start and the end of its window, and the number of a duplicate.
Slot = tuple[bytes, int, int, int]


@dataclass
class Windows:
    """The expected content of a store."""

    values: dict[Slot, Any] = field(default_factory=dict)
    #: The latest observed time.
    observed: int = -1
    #: The number of the last duplicate.
    number: int = 0


class WindowModel(StoreModel):
    """A store of windows or sessions."""

    kind: Any = "rocksdb"
    sessions = False
    timestamped = False
    duplicates = False

    @initialize(
        retention=st.sampled_from([20, 70_000, 150_000]),
        variant=st.sampled_from(["plain", "plain", "time_ordered", "cached", "cached"]),
        cache_bytes=st.sampled_from([1, 400, 1_000_000]),
        recent_bytes=st.sampled_from([500, LARGE_BUDGET]),
        exactly_once=st.booleans(),
        mutable=st.booleans(),
    )
    def start(
        self,
        retention: int,
        variant: str,
        cache_bytes: int,
        recent_bytes: int,
        exactly_once: bool,
        mutable: bool,
    ) -> None:
        if self.duplicates:
            variant = "plain"
        self.retention = FOREVER_MS if variant == "cached" else retention
        self.segment = max(self.retention // 2, 60_000)
        self.time_ordered = variant == "time_ordered"
        self.value_serde: Any = JSON if mutable else LONG
        common: Any = {
            "kind": self.kind,
            "key_serde": BYTES,
            "value_serde": self.value_serde,
            "retention_ms": self.retention,
            "caching": variant == "cached",
            "time_ordered": self.time_ordered,
        }
        self.should_drop = 0
        builder: Any
        if self.sessions:
            builder = SessionStoreBuilder("s", **common)
        else:
            builder = WindowStoreBuilder(
                "s",
                **common,
                window_size_ms=SIZE_MS,
                retain_duplicates=self.duplicates,
                timestamped=self.timestamped,
            )
        self.begin(
            builder,
            exactly_once=exactly_once,
            recent_bytes=recent_bytes,
            cache_bytes=cache_bytes,
        )

    def on_opened(self) -> None:
        self.store = self.stores.store("s")
        self.table = self.stores.table("s")
        self.cache = self.stores.caches().get("s")
        if self.cache is not None:
            self.cache.forwards_changes = True
            self.cache.sends_old_values = True
        #: The forwarded values; after a crash, the store's content.
        self.downstream = self.forwarded(self.model)

    def forwarded(self, model: Windows) -> dict[Windowed[bytes], Any]:
        return {window_of(slot): self.plain(value) for slot, value in model.values.items()}

    def read_content(self, stores: TaskStores) -> Any:
        store = stores.store("s")
        if self.sessions:
            return list(store.find_sessions_range(None, None, 0, MAX_TIME_MS))
        return list(store.all())

    def expected_content(self, model: Windows) -> Any:
        slots = self.visible(0, FOREVER_MS, model, by_time=not self.sessions)
        return [(window_of(slot), model.values[slot]) for slot in slots]

    def replay(self, records: Sequence[LoggedRecord]) -> Windows:
        model, should_drop = Windows(), self.should_drop
        for record in records:
            value = self.value_serde.deserialize("", record.value)
            if self.timestamped and value is not None:
                value = ValueAndTimestamp(value, record.timestamp)
            stored = record.key
            if self.sessions:
                slot = (stored[:-16], *session_of(stored), 0)
            else:
                start = int.from_bytes(stored[-12:-4], "big")
                number = int.from_bytes(stored[-4:], "big")
                slot = (stored[:-12], start, start + SIZE_MS, number)
                model.number = max(model.number, number)
            # Deletions that the store ignores do not advance its observed time either.
            if not (self.duplicates and self.persistent and value is None):
                self.write(slot, value, model)
        self.should_drop = should_drop
        return model

    @property
    def persistent(self) -> bool:
        return bool(self.kind == "rocksdb")

    # --- the rules of retention ----------------------------------------------------------------

    def first_live(self, model: Windows) -> int:
        """The earliest time that can be read."""
        exact = model.observed - self.retention + 1
        # Kafka Streams includes the last millisecond if windows are ordered by time.
        reaches_last = self.time_ordered and self.persistent and not self.sessions
        return exact - 1 if reaches_last else exact

    def takes(self, time: int, model: Windows) -> bool:
        """Whether an entry at this time is accepted, once the store has observed the time."""
        if not self.persistent:
            return time >= self.first_live(model)
        dead = max(model.observed - self.retention, 0) // self.segment
        return time // self.segment >= dead

    def observe(self, time: int, model: Windows) -> None:
        if time > model.observed:
            model.observed = time
            values = model.values.items()
            model.values = {s: v for s, v in values if self.takes(self.time_of(s), model)}

    def time_of(self, slot: Slot) -> int:
        return slot[2] if self.sessions else slot[1]

    def write(self, slot: Slot, value: Any, model: Windows | None = None) -> None:
        model = model or self.model
        assert model is not None
        time = self.time_of(slot)
        self.observe(time, model)
        if not self.takes(time, model):
            self.should_drop += 1
        elif value is None:
            model.values.pop(slot, None)
        else:
            model.values[slot] = value

    def visible(
        self,
        time_from: int,
        time_to: int,
        model: Windows | None = None,
        *,
        expired_too: bool = False,
        by_time: bool = False,
    ) -> list[Slot]:
        """The slots that can be read, in the order of `order`."""
        model = model or self.model
        assert model is not None
        first = time_from if expired_too else max(time_from, self.first_live(model))
        found = [slot for slot in model.values if first <= self.time_of(slot) <= time_to]
        return sorted(found, key=partial(self.order, by_time=by_time))

    def order(self, slot: Slot, *, by_time: bool) -> tuple[Any, ...]:
        """The sort key of a slot in the store's order.

        A store ordered by time also has an index by key; `by_time` selects the one that is read.
        """
        key, start, end, number = slot
        time = self.time_of(slot)
        if not self.persistent:
            # Kafka Streams returns the last of several sessions with the same end first.
            return time, key, -start if self.sessions else number
        if not (self.time_ordered and by_time):
            parts = [end, start] if self.sessions else [start]
            tail = b"".join(part.to_bytes(8, "big") for part in parts)
            return time // self.segment, key + tail + number.to_bytes(4, "big")
        return (end, start, key) if self.sessions else (start, key)

    def value(self, number: int) -> Any:
        time = self.tick()
        return ValueAndTimestamp(number, time) if self.timestamped else number

    def plain(self, value: Any) -> Any:
        return value.value if self.timestamped else value

    def forward(self, changes: FlushedChanges | None) -> None:
        if changes is None:
            return
        assert changes.old_values is not None
        columns = zip(changes.keys, changes.new_values, changes.old_values, strict=True)
        for key, new, old in columns:
            assert old == self.downstream.pop(key, None)
            assert not (new is None and old is None)
            if new is not None:
                self.downstream[key] = new

    # --- operations ----------------------------------------------------------------------------

    @rule(puts=argument_lists(keys, times, st.integers(0, 40_000), st.none() | numbers))
    def put(self, puts: list[tuple[bytes, int, int, int | None]]) -> None:
        for put in puts:
            self.put_one(*put)

    def put_one(self, key: bytes, time: int, length: int, number: int | None) -> None:
        value = None if number is None else self.value(number)
        if self.sessions:
            start = max(0, time - length)
            self.store.put(Windowed(key, Window(start, time)), value)
            self.write((key, start, time, 0), value)
            return
        self.store.put(key, value, time)
        if not self.duplicates:
            self.write((key, time, time + SIZE_MS, 0), value)
            return
        self.model.number += 1
        if value is not None or not self.persistent:
            self.write((key, time, time + SIZE_MS, self.model.number), value)

    @rule(puts=argument_lists(keys, times, st.none() | numbers))
    def put_as_an_operator(self, puts: list[tuple[bytes, int, int | None]]) -> None:
        for put in puts:
            self.put_one_as_an_operator(*put)

    def put_one_as_an_operator(self, key: bytes, time: int, number: int | None) -> None:
        value = None if number is None else self.value(number)
        timestamp = self.context.timestamp
        if self.sessions:
            self.table.put(key, time, time, number, timestamp, SOURCE, 0)
            self.write((key, time, time, 0), value)
        elif not self.duplicates:
            self.table.put(key, time, number, timestamp, SOURCE, 0)
            self.write((key, time, time + SIZE_MS, 0), value)
        if self.cache is not None:
            self.forward(self.cache.evict())

    @rule(puts=argument_lists(keys, times, st.none() | numbers))
    @precondition(lambda self: self.cache is None and not self.sessions and not self.duplicates)
    def aggregate_as_an_operator(self, puts: list[tuple[bytes, int, int | None]]) -> None:
        """Process a batch like a windowed aggregation without a cache."""
        slots = [(key, time, time + SIZE_MS, 0) for key, time, _ in puts]
        stored = [window_key(key, time) for key, time, _ in puts]
        live = set(self.visible(0, FOREVER_MS))
        expected = [self.model.values[slot] if slot in live else None for slot in slots]
        found = self.table.read_encoded_many(stored)
        datas = [None if each is None else self.table.decode(each[0]) for each in found]
        assert datas == [None if value is None else self.plain(value) for value in expected]
        first = self.context.timestamp + 1
        values = [(self.value(n or 0), n) for _, _, n in puts]
        self.table.write_encoded_many(
            stored,
            self.table.encode_many([number for _, number in values]),
            list(range(first, first + len(puts))),
        )
        for slot, (value, number) in zip(slots, values, strict=True):
            self.write(slot, None if number is None else value)

    @rule(key=keys, time=times, gap=st.integers(0, 30_000), number=numbers)
    @precondition(lambda self: self.sessions)
    def merge_as_an_operator(self, key: bytes, time: int, gap: int, number: int) -> None:
        """Process a record like a session aggregation."""
        found = self.table.find(key, time - gap, time + gap)
        start = min([time, *(first for first, _, _ in found)])
        end = max([time, *(last for _, last, _ in found)])
        caused = (self.context.timestamp, SOURCE, 0)
        for first, last, value in found:
            assert self.model.values.pop((key, first, last, 0)) == value
        self.value(number)
        for first, last, _ in found[:-1]:
            self.table.remove(key, first, last, *caused)
        if found:
            self.table.replace(key, found[-1][:2], start, end, number, *caused)
        else:
            self.table.put(key, start, end, number, *caused)
        self.write((key, start, end, 0), number)
        if self.cache is not None:
            self.forward(self.cache.evict())

    @rule(number=numbers)
    @precondition(lambda self: self.sessions and self.model.values)
    def remove(self, number: int) -> None:
        slot = sorted(self.model.values)[number % len(self.model.values)]
        self.store.remove(window_of(slot))
        del self.model.values[slot]

    @rule(key=keys, first=times, last=times, reverse=st.booleans(), later=st.booleans())
    @precondition(lambda self: not self.sessions)
    def fetch(self, key: bytes, first: int, last: int, reverse: bool, later: bool) -> None:
        fetch = self.store.backward_fetch if reverse else self.store.fetch
        slots = sorted(slot for slot in self.visible(first, last) if slot[0] == key)
        expected = [(slot[1], self.model.values[slot]) for slot in slots]
        self.compare(fetch(key, first, last), expected[::-1] if reverse else expected, later)
        found = [(start, value) for start, value, _ in self.table.fetch_between(key, first, last)]
        assert found == [(start, self.plain(value)) for start, value in expected]

    @rule(key=keys, time=times)
    @precondition(lambda self: not self.sessions and not self.duplicates)
    def fetch_one(self, key: bytes, time: int) -> None:
        is_there = (key, time, time + SIZE_MS, 0) in self.visible(time, time)
        expected = self.model.values[key, time, time + SIZE_MS, 0] if is_there else None
        assert self.store.fetch(key, time) == expected
        found = self.table.fetch(key, time)
        assert (None if found is None else found[0]) == (
            None if expected is None else self.plain(expected)
        )

    @rule(key=keys, first=times, last=times, reverse=st.booleans(), later=st.booleans())
    @precondition(lambda self: self.sessions)
    def find(self, key: bytes, first: int, last: int, reverse: bool, later: bool) -> None:
        slots = [s for s in self.visible(first, FOREVER_MS) if s[0] == key and s[1] <= last]
        last_first = not self.persistent
        slots.sort(key=lambda slot: (slot[2], -slot[1] if last_first else slot[1]))
        expected = [(window_of(s), self.model.values[s]) for s in slots]
        find = self.store.backward_find_sessions if reverse else self.store.find_sessions
        self.compare(find(key, first, last), expected[::-1] if reverse else expected, later)
        found = self.table.find(key, first, last)
        assert found == [(*session.window, value) for session, value in expected]
        for session, value in expected:
            assert self.store.fetch_session(key, *session.window) == value

    @rule(
        lo=st.none() | keys,
        hi=st.none() | keys,
        first=times,
        last=times,
        reverse=st.booleans(),
        later=st.booleans(),
    )
    def fetch_range(
        self,
        lo: bytes | None,
        hi: bytes | None,
        first: int,
        last: int,
        reverse: bool,
        later: bool,
    ) -> None:
        slots = self.visible(first, FOREVER_MS if self.sessions else last)
        slots = [s for s in slots if (lo is None or s[0] >= lo) and (hi is None or s[0] <= hi)]
        if self.sessions:
            slots = [slot for slot in slots if slot[1] <= last]
        expected = [(window_of(s), self.model.values[s]) for s in slots]
        forward = "find_sessions_range" if self.sessions else "fetch_range"
        fetch = getattr(self.store, f"backward_{forward}" if reverse else forward)
        self.compare(fetch(lo, hi, first, last), expected[::-1] if reverse else expected, later)

    @rule(
        key=keys, time=times, length=st.integers(0, 40_000), number=numbers, reverse=st.booleans()
    )
    def read_on(self, key: bytes, time: int, length: int, number: int, reverse: bool) -> None:
        """Read from a position, with or without an entry there."""
        if self.sessions:
            begin = (key, max(0, time - length), time, 0)
        else:
            begin = (key, time, time + SIZE_MS, number if self.duplicates else 0)
        by_time = not self.sessions
        order = partial(self.order, by_time=by_time)
        place = order(begin)
        slots = self.visible(0, FOREVER_MS, by_time=by_time)
        if reverse:
            expected = [slot for slot in slots if order(slot) <= place][::-1]
        else:
            expected = [slot for slot in slots if order(slot) >= place]
        found = self.table.read_keys(
            None, None, 0, FOREVER_MS, reverse=reverse, begin=self.stored(begin)
        )
        assert [each for each, _ in found] == list(map(self.stored, expected))

    def stored(self, slot: Slot) -> bytes:
        key, start, end, number = slot
        return session_key(key, start, end) if self.sessions else window_key(key, start, number)

    def compare(self, found: Any, expected: list[Any], later: bool) -> None:
        if later:
            self.keep_open(found, iter(expected))
        else:
            assert list(found) == expected

    @rule(first=times, last=times)
    @precondition(lambda self: self.cache is None)
    def find_closed(self, first: int, last: int) -> None:
        expired_too = self.sessions and self.persistent
        slots = self.visible(first, last, expired_too=expired_too, by_time=True)
        expected = [(window_of(s), self.plain(self.model.values[s])) for s in slots]
        look = self.table.find_ended if self.sessions else self.table.fetch_all
        assert [found[:2] for found in look(first, last)] == expected

    def on_flushed(self) -> None:
        if self.cache is None:
            assert self.dropped == self.should_drop
        else:
            assert self.downstream == self.forwarded(self.model)


def window_of(slot: Slot) -> Windowed[bytes]:
    return Windowed(slot[0], Window(slot[1], slot[2]))


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("variant", ["plain", "timestamped", "duplicates"])
def test_a_window_store_matches_a_dict_with_retention(kind: str, variant: str) -> None:
    run_model(
        WindowModel,
        examples=15,
        kind=kind,
        timestamped=variant == "timestamped",
        duplicates=variant == "duplicates",
    )


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_a_session_store_matches_a_dict_with_retention(kind: str) -> None:
    run_model(WindowModel, examples=20, kind=kind, sessions=True)
