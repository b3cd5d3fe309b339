"""Goal: a window or session store is a dict that forgets what is old, however it is layered, and
after a crash it is what its changelog says.

Method: random operations on a real store (RocksDB or memory, cached or not, with recent entries in
memory or not) against a dict with the rules of retention written down anew. What is cached stays
visible for as long as it happens to be cached, so cached stores get a retention that nothing
outlives, and the others one that much does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from millstream.record import Headers, TaskId, TopicPartition, ValueAndTimestamp
from millstream.serdes import BYTES, JSON, LONG
from millstream.state.cache_entries import CacheBudget, FlushedChanges
from millstream.state.directory import StateDirectory
from millstream.state.task_stores import TaskStores
from millstream.state.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.window_keys import session_of
from millstream.windowed import Window, Windowed

CHANGELOG = TopicPartition("app-s-changelog", 0)
SOURCE = TopicPartition("in", 0)
SIZE_MS = 10
FOREVER_MS = 10_000_000

# The bytes of a time or a number among those of a key must not confuse the store.
keys = st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"a" + bytes(8), b"a" + bytes(12)])
times = st.one_of(
    st.integers(0, 6).map(lambda n: n * 30_000),
    st.integers(0, 200_000),
    st.sampled_from([59_999, 60_000, 60_001, 119_999, 120_000]),
)
numbers = st.integers(0, 5)

#: A key with the start and the end of its window, and which of the duplicates it is.
Slot = tuple[bytes, int, int, int]


class Context:
    timestamp = 0
    place: TopicPartition | None = SOURCE
    offset = 0
    headers: Headers = ()


class WindowModel(RuleBasedStateMachine):
    """One store, the dict it should be, and what its changelog says."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="millstream-state-"))
        self.context = Context()
        self.log: list[tuple[bytes, bytes | None, int]] = []
        self.model: dict[Slot, Any] = {}
        self.observed = -1
        self.number = 0
        self.dropped = self.should_drop = 0
        self.downstream: dict[Windowed[bytes], Any] = {}
        self.stores: TaskStores | None = None

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        assert timestamps is not None
        self.log += zip(keys, values, timestamps, strict=True)

    @initialize(
        sessions=st.booleans(),
        kind=st.sampled_from(["rocksdb", "in_memory"]),
        retention=st.sampled_from([20, 70_000, 150_000]),
        flavour=st.sampled_from(["plain", "duplicates", "time_ordered", "cached", "cached"]),
        cache_bytes=st.sampled_from([1, 400, 1_000_000]),
        recent_bytes=st.sampled_from([500, 1_000_000]),
        mutable=st.booleans(),
        timestamped=st.booleans(),
    )
    def start(
        self,
        sessions: bool,
        kind: Any,
        retention: int,
        flavour: str,
        cache_bytes: int,
        recent_bytes: int,
        mutable: bool,
        timestamped: bool,
    ) -> None:
        self.sessions = sessions
        self.retention = FOREVER_MS if flavour == "cached" else retention
        self.segment = max(self.retention // 2, 60_000)
        self.duplicates = flavour == "duplicates" and not sessions
        self.time_ordered = flavour == "time_ordered"
        self.timestamped = timestamped and not sessions
        self.value_serde: Any = JSON if mutable else LONG
        common: Any = {
            "kind": kind,
            "key_serde": BYTES,
            "value_serde": self.value_serde,
            "retention_ms": self.retention,
            "caching": flavour == "cached",
            "time_ordered": self.time_ordered,
        }
        self.builder: Any
        if sessions:
            self.builder = SessionStoreBuilder("s", **common)
        else:
            self.builder = WindowStoreBuilder(
                "s",
                **common,
                window_size_ms=SIZE_MS,
                retain_duplicates=self.duplicates,
                timestamped=timestamped,
            )
        self.cache_bytes = cache_bytes
        self.recent_bytes = recent_bytes
        self.open()

    def open(self) -> None:
        self.stores = TaskStores(
            TaskId(0, 0),
            [self.builder],
            StateDirectory(self.directory, "app"),
            application_id="app",
            changelogs={"s": CHANGELOG},
            writer=self,
            context=self.context,
            budget=CacheBudget(self.cache_bytes),
            uncommitted_max_bytes=self.recent_bytes,
            dropped=self.count,
        )
        self.stores.open()
        self.store = self.stores.store("s")
        self.table = self.stores.table("s")
        self.cache = self.stores.caches().get("s")
        if self.cache is not None:
            self.cache.forwards_changes = True
            self.cache.sends_old_values = True

    def count(self, count: int, why: str, store: str) -> None:
        assert store == "s"
        self.dropped += count

    # --- the rules of retention ----------------------------------------------------------------

    def first_live(self) -> int:
        """The earliest time that is still read."""
        exact = self.observed - self.retention + 1
        return exact - 1 if self.sessions and self.builder.persistent else exact

    def takes(self, time: int) -> bool:
        """Whether something of this time is still taken, now that the store has seen it."""
        if not self.builder.persistent:
            return time >= self.first_live()
        dead = max(self.observed - self.retention, 0) // self.segment
        return time // self.segment >= dead

    def observe(self, time: int) -> None:
        self.observed = max(self.observed, time)
        self.model = {slot: v for slot, v in self.model.items() if self.takes(self.time_of(slot))}

    def time_of(self, slot: Slot) -> int:
        return slot[2] if self.sessions else slot[1]

    def write(self, slot: Slot, value: Any) -> None:
        time = self.time_of(slot)
        self.observe(time)
        if not self.takes(time):
            self.should_drop += 1
        elif value is None:
            self.model.pop(slot, None)
        else:
            self.model[slot] = value

    def visible(self, time_from: int, time_to: int, *, expired_too: bool = False) -> list[Slot]:
        """The slots that can be read, in the store's order."""
        first = time_from if expired_too else max(time_from, self.first_live())
        found = [slot for slot in self.model if first <= self.time_of(slot) <= time_to]
        return sorted(found, key=self.order)

    def order(self, slot: Slot) -> tuple[Any, ...]:
        key, start, end, number = slot
        time = self.time_of(slot)
        if not self.builder.persistent:
            # Kafka Streams has the last session first, of those that end together.
            return time, key, -start if self.sessions else number
        if not self.time_ordered:
            parts = [end, start] if self.sessions else [start]
            tail = b"".join(part.to_bytes(8, "big") for part in parts)
            return time // self.segment, key + tail + number.to_bytes(4, "big")
        return (end, start, key) if self.sessions else (start, key)

    def value(self, number: int) -> Any:
        self.context.timestamp += 1
        return ValueAndTimestamp(number, self.context.timestamp) if self.timestamped else number

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

    @rule(key=keys, time=times, length=st.integers(0, 40_000), number=st.none() | numbers)
    def put(self, key: bytes, time: int, length: int, number: int | None) -> None:
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
        self.number += 1
        if value is not None or not self.builder.persistent:
            self.write((key, time, time + SIZE_MS, self.number), value)

    @rule(key=keys, time=times, number=st.none() | numbers)
    def put_as_an_operator(self, key: bytes, time: int, number: int | None) -> None:
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

    @rule(key=keys, time=times, gap=st.integers(0, 30_000), number=numbers)
    @precondition(lambda self: self.sessions)
    def merge_as_an_operator(self, key: bytes, time: int, gap: int, number: int) -> None:
        """What an aggregation by sessions does with a record."""
        start = end = time
        for first, last, value in self.table.find(key, time - gap, time + gap):
            assert self.model[key, first, last, 0] == value
            start, end = min(start, first), max(end, last)
            self.table.remove(key, first, last, self.context.timestamp, SOURCE, 0)
            del self.model[key, first, last, 0]
        self.value(number)
        self.table.put(key, start, end, number, self.context.timestamp, SOURCE, 0)
        self.write((key, start, end, 0), number)
        if self.cache is not None:
            self.forward(self.cache.evict())

    @rule(number=numbers)
    @precondition(lambda self: self.sessions and self.model)
    def remove(self, number: int) -> None:
        slot = sorted(self.model)[number % len(self.model)]
        self.store.remove(Windowed(slot[0], Window(slot[1], slot[2])))
        del self.model[slot]

    @rule(key=keys, first=times, last=times, reverse=st.booleans())
    @precondition(lambda self: not self.sessions)
    def fetch(self, key: bytes, first: int, last: int, reverse: bool) -> None:
        fetch = self.store.backward_fetch if reverse else self.store.fetch
        slots = sorted(slot for slot in self.visible(first, last) if slot[0] == key)
        want = [(slot[1], self.model[slot]) for slot in slots]
        assert list(fetch(key, first, last)) == (want[::-1] if reverse else want)
        found = [(start, value) for start, value, _ in self.table.fetch_between(key, first, last)]
        assert found == [(start, self.plain(value)) for start, value in want]

    @rule(key=keys, time=times)
    @precondition(lambda self: not self.sessions and not self.duplicates)
    def fetch_one(self, key: bytes, time: int) -> None:
        is_there = (key, time, time + SIZE_MS, 0) in self.visible(time, time)
        want = self.model[key, time, time + SIZE_MS, 0] if is_there else None
        assert self.store.fetch(key, time) == want
        found = self.table.fetch(key, time)
        assert (None if found is None else found[0]) == (None if want is None else self.plain(want))

    @rule(key=keys, first=times, last=times, reverse=st.booleans())
    @precondition(lambda self: self.sessions)
    def find(self, key: bytes, first: int, last: int, reverse: bool) -> None:
        slots = [s for s in self.visible(first, FOREVER_MS) if s[0] == key and s[1] <= last]
        last_first = not self.builder.persistent
        slots.sort(key=lambda slot: (slot[2], -slot[1] if last_first else slot[1]))
        want = [(Windowed(s[0], Window(s[1], s[2])), self.model[s]) for s in slots]
        find = self.store.backward_find_sessions if reverse else self.store.find_sessions
        assert list(find(key, first, last)) == (want[::-1] if reverse else want)
        found = self.table.find(key, first, last)
        assert found == [(*session.window, value) for session, value in want]
        for session, value in want:
            assert self.store.fetch_session(key, *session.window) == value

    @rule(lo=st.none() | keys, hi=st.none() | keys, first=times, last=times, reverse=st.booleans())
    def fetch_range(
        self, lo: bytes | None, hi: bytes | None, first: int, last: int, reverse: bool
    ) -> None:
        slots = self.visible(first, FOREVER_MS if self.sessions else last)
        slots = [s for s in slots if (lo is None or s[0] >= lo) and (hi is None or s[0] <= hi)]
        if self.sessions:
            slots = [slot for slot in slots if slot[1] <= last]
        want = [(Windowed(s[0], Window(s[1], s[2])), self.model[s]) for s in slots]
        forward = "find_sessions_range" if self.sessions else "fetch_range"
        fetch = getattr(self.store, f"backward_{forward}" if reverse else forward)
        assert list(fetch(lo, hi, first, last)) == (want[::-1] if reverse else want)

    @rule(first=times, last=times)
    @precondition(lambda self: self.cache is None)
    def look_for_closed(self, first: int, last: int) -> None:
        expired_too = self.sessions and self.builder.persistent
        slots = self.visible(first, last, expired_too=expired_too)
        want = [(Windowed(s[0], Window(s[1], s[2])), self.plain(self.model[s])) for s in slots]
        look = self.table.find_ended if self.sessions else self.table.fetch_all
        assert [found[:2] for found in look(first, last)] == want

    # --- life ----------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        assert self.stores is not None
        self.stores.flush_caches(lambda name, changes: self.forward(changes))
        if self.cache is not None:
            told = {Windowed(s[0], Window(s[1], s[2])): v for s, v in self.model.items()}
            assert self.downstream == {key: self.plain(value) for key, value in told.items()}

    @rule()
    def commit(self) -> None:
        assert self.stores is not None
        self.flush()
        assert self.cache is not None or self.dropped == self.should_drop
        self.stores.commit({CHANGELOG: len(self.log) - 1} if self.log else {})
        assert self.stores.uncommitted_bytes == 0

    @rule(batch=st.integers(1, 5), clean=st.booleans())
    def reopen_and_restore(self, batch: int, clean: bool) -> None:
        """Come back after a clean close, or after a crash: whatever was logged is there again."""
        assert self.stores is not None
        if clean:
            self.commit()
        self.stores.close(clean=clean)
        self.open()
        (restorer,) = self.stores.restorers().values()
        start = restorer.start_offset() or 0
        if clean and self.builder.persistent and self.log:
            assert start == len(self.log)
        for first in range(start, len(self.log), batch):
            records = self.log[first : first + batch]
            restorer.restore_batch(
                [key for key, _, _ in records],
                [value for _, value, _ in records],
                [timestamp for _, _, timestamp in records],
                range(first, first + len(records)),
            )
        self.model_what_is_logged()
        self.downstream = {
            Windowed(s[0], Window(s[1], s[2])): self.plain(v) for s, v in self.model.items()
        }

    def model_what_is_logged(self) -> None:
        self.model, dropped = {}, self.should_drop
        self.observed = -1
        for stored, data, timestamp in self.log:
            value = self.value_serde.deserialize("", data)
            if self.timestamped and value is not None:
                value = ValueAndTimestamp(value, timestamp)
            if self.sessions:
                slot = (stored[:-16], *session_of(stored), 0)
            else:
                start = int.from_bytes(stored[-12:-4], "big")
                slot = (stored[:-12], start, start + SIZE_MS, int.from_bytes(stored[-4:], "big"))
            # Where they mean nothing to the store, deletions do not move its time on either.
            if not (self.duplicates and self.builder.persistent and value is None):
                self.write(slot, value)
        self.should_drop = dropped
        self.number = max((slot[3] for slot in self.model), default=self.number)
        if self.duplicates and self.log:
            self.number = max(int.from_bytes(stored[-4:], "big") for stored, _, _ in self.log)

    def teardown(self) -> None:
        if self.stores is not None:
            self.stores.close(clean=False)
        shutil.rmtree(self.directory)


WindowModel.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_window_store_is_a_dict_that_forgets = WindowModel.TestCase
