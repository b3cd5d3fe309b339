"""Goal: the internal stores of the DSL match plain models: buffers sorted by time, lists of
unmatched records, subscriptions; after a crash, they match their changelogs.

Method: random operations against lists and dicts. `StoreModel` has the events of the task.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from support.tasks.store_model import (
    LARGE_BUDGET,
    SMALL_BUDGET,
    SOURCE,
    LoggedRecord,
    StoreModel,
    argument_lists,
    run_model,
)

from millstream.record import Headers, ValueAndTimestamp
from millstream.serdes import BYTES, STRING, list_of
from millstream.state.buffers.buffer_value import BufferedContext, BufferValue
from millstream.state.buffers.time_ordered_buffer import NEVER
from millstream.state.builders.buffer_builders import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.task_stores import TaskStores

KEYS = ["", "a", "ab", "é"]
keys = st.sampled_from(KEYS)
values = st.sampled_from(["", "x", "yy"])
times = st.integers(0, 20)
budgets = st.sampled_from([SMALL_BUDGET, LARGE_BUDGET])
headers: st.SearchStrategy[Headers] = st.sampled_from([(), (("h", b"1"), ("n", None))])
_TIME = struct.Struct(">q")


class BufferedChange(NamedTuple):
    """A change in a suppress buffer."""

    time: int
    prior: str | None
    old: str | None
    new: str | None
    context: BufferedContext


class SuppressModel(StoreModel):
    """The buffer of `suppress`: a commit writes its changes to the changelog."""

    @initialize(exactly_once=st.booleans())
    def start(self, exactly_once: bool) -> None:
        self.begin(SuppressBufferBuilder("s", STRING, STRING), exactly_once=exactly_once)

    def on_opened(self) -> None:
        self.buffer = self.stores.table("s")

    def replay(self, records: Sequence[LoggedRecord]) -> dict[str, BufferedChange]:
        changes: dict[str, BufferedChange] = {}
        for record in records:
            key = record.key.decode()
            changes.pop(key, None)
            if record.value is not None:
                value, time = BufferValue.decode(record.value)
                prior, old, new = map(decoded, value[:3])
                changes[key] = BufferedChange(_TIME.unpack(time)[0], prior, old, new, value.context)
        return changes

    def read_content(self, stores: TaskStores) -> Any:
        buffer = stores.table("s")
        prior = {key: buffer.prior_value(key) for key in KEYS}
        return buffer.num_records, buffer.min_timestamp, buffer.size_bytes, prior

    def expected_content(self, model: dict[str, BufferedChange]) -> Any:
        size = sum(8 + len(key.encode()) + size_of(changes) for key, changes in model.items())
        prior = {key: (key in model, model[key].prior if key in model else None) for key in KEYS}
        return len(model), min((h.time for h in model.values()), default=NEVER), size, prior

    @rule(puts=argument_lists(keys, times, st.none() | values, st.none() | values, headers))
    def put(self, puts: list[tuple[str, int, str | None, str | None, Headers]]) -> None:
        for put in puts:
            self.put_one(*put)

    def put_one(
        self, key: str, time: int, new: str | None, old: str | None, headers: Headers
    ) -> None:
        context = BufferedContext(self.tick(), self.context.offset, SOURCE, headers)
        self.buffer.put(
            time,
            key,
            new,
            old,
            timestamp=context.timestamp,
            place=SOURCE,
            offset=context.offset,
            headers=headers,
        )
        known = self.model.get(key)
        first, prior = (time, old) if known is None else (known.time, known.prior)
        self.model[key] = BufferedChange(first, prior, old, new, context)

    @rule(until=times, limit=st.integers(0, 5))
    def evict(self, until: int, limit: int) -> None:
        """Entries stay in the buffer unless the consumer continues after them."""
        buffer = self.buffer
        due = [(changes.time, key.encode(), key) for key, changes in self.model.items()]
        expected = [key for time, _, key in sorted(due) if time <= until]
        evicted = buffer.evict_while(lambda: buffer.min_timestamp <= until)
        found = list(islice(evicted, limit))
        evicted.close()
        assert [change.key for change in found] == expected[:limit]
        for change in found:
            changes = self.model[change.key]
            assert change[1:] == (changes.new, changes.prior, changes.context)
        for key in expected[: limit if len(expected) < limit else max(0, limit - 1)]:
            del self.model[key]

    @rule()
    def read_all(self) -> None:
        assert self.read_content(self.stores) == self.expected_content(self.model)


def decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def size_of(changes: BufferedChange) -> int:
    prior, old, new = map(encoded, changes[1:4])
    return BufferValue(prior, old, new, changes.context).size_bytes()


@dataclass
class GraceBufferContent:
    """The expected content of a grace buffer: records by time, key and arrival."""

    records: list[tuple[int, bytes, int, str]] = field(default_factory=list)
    stream_time: int = -1


class GraceModel(StoreModel):
    """The buffer of a stream-table join with grace."""

    @initialize(grace_ms=st.integers(0, 8), exactly_once=st.booleans(), waiting_bytes=budgets)
    def start(self, grace_ms: int, exactly_once: bool, waiting_bytes: int) -> None:
        self.grace_ms = grace_ms
        self.begin(
            GraceBufferBuilder("s", grace_ms, STRING, STRING),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def on_opened(self) -> None:
        self.buffer = self.stores.table("s")

    def replay(self, records: Sequence[LoggedRecord]) -> GraceBufferContent:
        stored_records: dict[bytes, bytes] = {}
        for record in records:
            if record.value is None:
                stored_records.pop(record.key, None)
            else:
                stored_records[record.key] = record.value
        waiting = [(*key_of(stored), text_of(value)) for stored, value in stored_records.items()]
        return GraceBufferContent(waiting, max((record[0] for record in waiting), default=-1))

    def read_content(self, stores: TaskStores) -> Any:
        base = stores.table("s")._base
        return [(*key_of(key)[:2], text_of(value)) for key, value in base.scan(None, None)]

    def expected_content(self, model: GraceBufferContent) -> Any:
        return [(time, key, value) for time, key, _, value in sorted(model.records)]

    @rule(puts=argument_lists(keys, times, values))
    def put(self, puts: list[tuple[str, int, str]]) -> None:
        for put in puts:
            self.put_one(*put)

    def put_one(self, key: str, timestamp: int, value: str) -> None:
        self.tick()
        model = self.model
        taken = timestamp >= model.stream_time - self.grace_ms
        assert taken == self.buffer.put(key, value, timestamp=timestamp, place=SOURCE, offset=0)
        if taken:
            model.stream_time = max(model.stream_time, timestamp)
            arrival = max((record[2] for record in model.records), default=0) + 1
            model.records.append((timestamp, key.encode(), arrival, value))

    @rule(limit=st.integers(0, 6))
    def evict(self, limit: int) -> None:
        """Entries stay in the buffer unless the consumer continues after them."""
        until = self.model.stream_time - self.grace_ms
        expected = sorted(record for record in self.model.records if record[0] <= until)
        evicted = self.buffer.evict()
        found = [
            (record.context.timestamp, record.key.encode(), record.value)
            for record in islice(evicted, limit)
        ]
        evicted.close()
        assert found == [(time, key, value) for time, key, _, value in expected[:limit]]
        gone = expected[: limit if len(expected) < limit else max(0, limit - 1)]
        self.model.records = [record for record in self.model.records if record not in gone]

    @rule()
    def read_all(self) -> None:
        assert self.read_content(self.stores) == self.expected_content(self.model)


def key_of(stored: bytes) -> tuple[int, bytes, int]:
    """Time, key and number of a record in a grace buffer."""
    return _TIME.unpack_from(stored, 1)[0], stored[9:-4], int.from_bytes(stored[-4:], "big")


def text_of(stored: bytes) -> str:
    new = BufferValue.decode(stored)[0].new
    assert new is not None
    return new.decode()


#: Time, whether it is the left side, and key of unmatched records.
Unmatched = tuple[int, bool, str]


class OuterJoinModel(StoreModel):
    """The unmatched records of a left or outer stream-stream join."""

    kind: Any = "rocksdb"

    @initialize(exactly_once=st.booleans(), waiting_bytes=budgets)
    def start(self, exactly_once: bool, waiting_bytes: int) -> None:
        self.begin(
            OuterJoinStoreBuilder("s", self.kind, STRING, STRING, STRING),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def on_opened(self) -> None:
        self.store = self.stores.table("s")

    def replay(self, records: Sequence[LoggedRecord]) -> dict[Unmatched, list[str]]:
        model: dict[Unmatched, list[str]] = {}
        for record in records:
            time, left = _TIME.unpack_from(record.key)[0], record.key[8:9] == b"\x01"
            key = record.key[9:].decode()
            model.pop((time, left, key), None)
            datas: Any = list_of(BYTES).deserialize("", record.value)
            if datas is not None:
                assert all(data[:1] == record.key[8:9] for data in datas)
                model[time, left, key] = [data[1:].decode() for data in datas]
        return model

    def read_content(self, stores: TaskStores) -> Any:
        return list(unmatched(stores.table("s")))

    def expected_content(self, model: dict[Unmatched, list[str]]) -> Any:
        ordered = sorted(model, key=lambda each: (*each[:2], each[2].encode()))
        return [(each, list(model[each])) for each in ordered]

    @rule(puts=argument_lists(times, st.booleans(), keys, values))
    def put(self, puts: list[tuple[int, bool, str, str]]) -> None:
        for time, left, key, value in puts:
            self.store.put(time, left, key, value, record_time=self.tick())
            self.model.setdefault((time, left, key), []).append(value)

    @rule(time=times, left=st.booleans(), key=keys)
    def remove_joined(self, time: int, left: bool, key: str) -> None:
        was_there = self.store.remove_joined(time, left, key, record_time=self.tick())
        assert was_there == (self.model.pop((time, left, key), None) is not None)

    @rule(limit=st.integers(0, 4))
    def emit(self, limit: int) -> None:
        """Emit and remove records of closed windows while iterating, like an operator."""
        for each in islice(self.store.all(), limit):
            key = (each.timestamp, each.left, self.store.key(each))
            assert self.store.values(each) == self.model.pop(key)
            self.store.remove(each.stored_key, record_time=self.tick())

    @rule()
    def read_all(self) -> None:
        assert self.read_content(self.stores) == self.expected_content(self.model)

    @rule()
    @precondition(lambda self: self.kind == "rocksdb")
    def read_all_later(self) -> None:
        self.keep_open(unmatched(self.store), iter(self.expected_content(self.model)))


def unmatched(store: Any) -> Iterator[tuple[Unmatched, list[str]]]:
    # Query the store now, not at the first iteration.
    found = store.all()

    def decoded() -> Iterator[tuple[Unmatched, list[str]]]:
        for each in found:
            yield (each.timestamp, each.left, store.key(each)), store.values(each)

    return decoded()


class SubscriptionModel(StoreModel):
    """The subscriptions of a foreign-key join: left rows that refer to right rows."""

    kind: Any = "rocksdb"

    @initialize(exactly_once=st.booleans(), waiting_bytes=budgets)
    def start(self, exactly_once: bool, waiting_bytes: int) -> None:
        self.begin(
            SubscriptionStoreBuilder("s", self.kind, BYTES, BYTES),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def on_opened(self) -> None:
        self.table = self.stores.table("s")

    def replay(self, records: Sequence[LoggedRecord]) -> dict[bytes, ValueAndTimestamp]:
        model: dict[bytes, ValueAndTimestamp] = {}
        for record in records:
            self.set(model, record.key, record.value, record.timestamp)
        return model

    def read_content(self, stores: TaskStores) -> Any:
        return list(stores.store("s").all())

    def expected_content(self, model: dict[bytes, ValueAndTimestamp]) -> Any:
        return sorted(model.items())

    @staticmethod
    def set(model: dict[bytes, Any], key: bytes, value: bytes | None, timestamp: int) -> None:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = ValueAndTimestamp(value, timestamp)

    @rule(
        puts=argument_lists(
            st.sampled_from([b"", b"r", b"r\xff"]),
            st.sampled_from([b"", b"1", b"\xff"]),
            st.sampled_from([b"", b"hash", None]),
            headers,
        )
    )
    def put(self, puts: list[tuple[bytes, bytes, bytes | None, Headers]]) -> None:
        for right, left, value, headers in puts:
            time = self.tick()
            self.table.put_many([right + left], [value], [time], [headers] if headers else None)
            self.set(self.model, right + left, value, time)

    @rule(right=st.sampled_from([b"", b"r", b"r\xff", b"\xff", b"x"]))
    def scan(self, right: bytes) -> None:
        assert self.table.scan(right) == [
            (key, value.value)
            for key, value in self.expected_content(self.model)
            if key.startswith(right)
        ]


def test_a_suppress_buffer_matches_a_dict_sorted_by_time() -> None:
    run_model(SuppressModel, examples=20)


def test_a_grace_buffer_matches_a_list_sorted_by_time() -> None:
    run_model(GraceModel, examples=15)


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_unmatched_records_match_a_dict_of_lists(kind: str) -> None:
    run_model(OuterJoinModel, examples=15, kind=kind)


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_subscriptions_match_a_dict(kind: str) -> None:
    run_model(SubscriptionModel, examples=15, kind=kind)
