"""Goal: the stores of the DSL's own are what they stand for: buffers sorted by time, lists of
unjoined records, subscriptions; after a crash they are what their changelogs say.

Method: random operations against plain lists and dicts. What happens to the task is `StoreModel`'s.
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
from support.tasks.store_model import LITTLE, MUCH, SOURCE, Logged, StoreModel, run_model, several

from millstream.record import Headers, ValueAndTimestamp
from millstream.serdes import BYTES, STRING, list_of
from millstream.state.buffers.buffer_value import BufferedContext, BufferValue
from millstream.state.buffers.time_ordered_buffer import NEVER
from millstream.state.builders.buffers import (
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
waiting = st.sampled_from([LITTLE, MUCH])
headers: st.SearchStrategy[Headers] = st.sampled_from([(), (("h", b"1"), ("n", None))])
_TIME = struct.Struct(">q")


class Held(NamedTuple):
    """A change in a suppress buffer."""

    time: int
    prior: str | None
    old: str | None
    new: str | None
    context: BufferedContext


class SuppressModel(StoreModel):
    """The buffer of a suppress: the changes of a commit are in its changelog only once it came."""

    @initialize(exactly_once=st.booleans())
    def start(self, exactly_once: bool) -> None:
        self.begin(SuppressBufferBuilder("s", STRING, STRING), exactly_once=exactly_once)

    def opened(self) -> None:
        self.buffer = self.stores.table("s")

    def replay(self, records: Sequence[Logged]) -> dict[str, Held]:
        held: dict[str, Held] = {}
        for record in records:
            key = record.key.decode()
            held.pop(key, None)
            if record.value is not None:
                value, time = BufferValue.decode(record.value)
                prior, old, new = map(decoded, value[:3])
                held[key] = Held(_TIME.unpack(time)[0], prior, old, new, value.context)
        return held

    def look(self, stores: TaskStores) -> Any:
        buffer = stores.table("s")
        prior = {key: buffer.prior_value(key) for key in KEYS}
        return buffer.num_records, buffer.min_timestamp, buffer.size_bytes, prior

    def shown(self, model: dict[str, Held]) -> Any:
        size = sum(8 + len(key.encode()) + size_of(held) for key, held in model.items())
        prior = {key: (key in model, model[key].prior if key in model else None) for key in KEYS}
        return len(model), min((h.time for h in model.values()), default=NEVER), size, prior

    @rule(puts=several(keys, times, st.none() | values, st.none() | values, headers))
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
        self.model[key] = Held(first, prior, old, new, context)

    @rule(until=times, most=st.integers(0, 5))
    def evict(self, until: int, most: int) -> None:
        """What is not taken out to the end stays, and so does what its receiver fails with."""
        buffer = self.buffer
        due = [(held.time, key.encode(), key) for key, held in self.model.items()]
        expected = [key for time, _, key in sorted(due) if time <= until]
        evicted = buffer.evict_while(lambda: buffer.min_timestamp <= until)
        found = list(islice(evicted, most))
        evicted.close()
        assert [change.key for change in found] == expected[:most]
        for change in found:
            held = self.model[change.key]
            assert change[1:] == (held.new, held.prior, held.context)
        for key in expected[: most if len(expected) < most else max(0, most - 1)]:
            del self.model[key]

    @rule()
    def look_at_everything(self) -> None:
        assert self.look(self.stores) == self.shown(self.model)


def decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def size_of(held: Held) -> int:
    prior, old, new = map(encoded, held[1:4])
    return BufferValue(prior, old, new, held.context).size_bytes()


@dataclass
class Waiting:
    """What a grace buffer should be like: records by time, key and arrival."""

    records: list[tuple[int, bytes, int, str]] = field(default_factory=list)
    stream_time: int = -1


class GraceModel(StoreModel):
    """The buffer of a stream-table join with grace."""

    @initialize(grace_ms=st.integers(0, 8), exactly_once=st.booleans(), waiting_bytes=waiting)
    def start(self, grace_ms: int, exactly_once: bool, waiting_bytes: int) -> None:
        self.grace_ms = grace_ms
        self.begin(
            GraceBufferBuilder("s", grace_ms, STRING, STRING),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def opened(self) -> None:
        self.buffer = self.stores.table("s")

    def replay(self, records: Sequence[Logged]) -> Waiting:
        there: dict[bytes, bytes] = {}
        for record in records:
            if record.value is None:
                there.pop(record.key, None)
            else:
                there[record.key] = record.value
        waiting = [(*key_of(stored), text_of(value)) for stored, value in there.items()]
        return Waiting(waiting, max((record[0] for record in waiting), default=-1))

    def look(self, stores: TaskStores) -> Any:
        base = stores.table("s")._base
        return [(*key_of(key)[:2], text_of(value)) for key, value in base.scan(None, None)]

    def shown(self, model: Waiting) -> Any:
        return [(time, key, value) for time, key, _, value in sorted(model.records)]

    @rule(puts=several(keys, times, values))
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

    @rule(most=st.integers(0, 6))
    def evict(self, most: int) -> None:
        """What is not taken out to the end stays, and so does what its receiver fails with."""
        until = self.model.stream_time - self.grace_ms
        expected = sorted(record for record in self.model.records if record[0] <= until)
        evicted = self.buffer.evict()
        found = [
            (record.context.timestamp, record.key.encode(), record.value)
            for record in islice(evicted, most)
        ]
        evicted.close()
        assert found == [(time, key, value) for time, key, _, value in expected[:most]]
        gone = expected[: most if len(expected) < most else max(0, most - 1)]
        self.model.records = [record for record in self.model.records if record not in gone]

    @rule()
    def look_at_everything(self) -> None:
        assert self.look(self.stores) == self.shown(self.model)


def key_of(stored: bytes) -> tuple[int, bytes, int]:
    """Time, key and number of a record in a grace buffer."""
    return _TIME.unpack_from(stored, 1)[0], stored[9:-4], int.from_bytes(stored[-4:], "big")


def text_of(stored: bytes) -> str:
    new = BufferValue.decode(stored)[0].new
    assert new is not None
    return new.decode()


#: The time, whether it is of the left side, and the key of unjoined records.
Unjoined = tuple[int, bool, str]


class OuterJoinModel(StoreModel):
    """What a left or outer join of streams remembers."""

    kind: Any = "rocksdb"

    @initialize(exactly_once=st.booleans(), waiting_bytes=waiting)
    def start(self, exactly_once: bool, waiting_bytes: int) -> None:
        self.begin(
            OuterJoinStoreBuilder("s", self.kind, STRING, STRING, STRING),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def opened(self) -> None:
        self.store = self.stores.table("s")

    def replay(self, records: Sequence[Logged]) -> dict[Unjoined, list[str]]:
        model: dict[Unjoined, list[str]] = {}
        for record in records:
            time, left = _TIME.unpack_from(record.key)[0], record.key[8:9] == b"\x01"
            key = record.key[9:].decode()
            model.pop((time, left, key), None)
            datas: Any = list_of(BYTES).deserialize("", record.value)
            if datas is not None:
                assert all(data[:1] == record.key[8:9] for data in datas)
                model[time, left, key] = [data[1:].decode() for data in datas]
        return model

    def look(self, stores: TaskStores) -> Any:
        return list(unjoined(stores.table("s")))

    def shown(self, model: dict[Unjoined, list[str]]) -> Any:
        ordered = sorted(model, key=lambda each: (*each[:2], each[2].encode()))
        return [(each, list(model[each])) for each in ordered]

    @rule(puts=several(times, st.booleans(), keys, values))
    def put(self, puts: list[tuple[int, bool, str, str]]) -> None:
        for time, left, key, value in puts:
            self.store.put(time, left, key, value, record_time=self.tick())
            self.model.setdefault((time, left, key), []).append(value)

    @rule(time=times, left=st.booleans(), key=keys)
    def remove_joined(self, time: int, left: bool, key: str) -> None:
        was_there = self.store.remove_joined(time, left, key, record_time=self.tick())
        assert was_there == (self.model.pop((time, left, key), None) is not None)

    @rule(most=st.integers(0, 4))
    def emit(self, most: int) -> None:
        """What an operator does with those whose window has closed, while it iterates."""
        for each in islice(self.store.all(), most):
            key = (each.timestamp, each.left, self.store.key(each))
            assert self.store.values(each) == self.model.pop(key)
            self.store.remove(each.stored_key, record_time=self.tick())

    @rule()
    def look_at_everything(self) -> None:
        assert self.look(self.stores) == self.shown(self.model)

    @rule()
    @precondition(lambda self: self.kind == "rocksdb")
    def look_later(self) -> None:
        self.keep_open(unjoined(self.store), iter(self.shown(self.model)))


def unjoined(store: Any) -> Iterator[tuple[Unjoined, list[str]]]:
    # All is asked for now, not when the first one is.
    found = store.all()

    def decoded() -> Iterator[tuple[Unjoined, list[str]]]:
        for each in found:
            yield (each.timestamp, each.left, store.key(each)), store.values(each)

    return decoded()


class SubscriptionModel(StoreModel):
    """Which left rows of a foreign-key join refer to which right rows."""

    kind: Any = "rocksdb"

    @initialize(exactly_once=st.booleans(), waiting_bytes=waiting)
    def start(self, exactly_once: bool, waiting_bytes: int) -> None:
        self.begin(
            SubscriptionStoreBuilder("s", self.kind, BYTES, BYTES),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def opened(self) -> None:
        self.table = self.stores.table("s")

    def replay(self, records: Sequence[Logged]) -> dict[bytes, ValueAndTimestamp]:
        model: dict[bytes, ValueAndTimestamp] = {}
        for record in records:
            self.set(model, record.key, record.value, record.timestamp)
        return model

    def look(self, stores: TaskStores) -> Any:
        return list(stores.store("s").all())

    def shown(self, model: dict[bytes, ValueAndTimestamp]) -> Any:
        return sorted(model.items())

    @staticmethod
    def set(model: dict[bytes, Any], key: bytes, value: bytes | None, timestamp: int) -> None:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = ValueAndTimestamp(value, timestamp)

    @rule(
        puts=several(
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
            (key, value.value) for key, value in self.shown(self.model) if key.startswith(right)
        ]


def test_a_suppress_buffer_is_a_dict_sorted_by_time() -> None:
    run_model(SuppressModel, examples=20)


def test_a_grace_buffer_is_a_list_sorted_by_time() -> None:
    run_model(GraceModel, examples=15)


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_unjoined_records_are_a_dict_of_lists(kind: str) -> None:
    run_model(OuterJoinModel, examples=15, kind=kind)


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_subscriptions_are_a_dict(kind: str) -> None:
    run_model(SubscriptionModel, examples=15, kind=kind)
