"""Goal: a key-value store matches a dict, with any layers; after a crash, it matches the dict at
its last commit, or of its whole changelog once restored.

Method: random operations on a real store (RocksDB or in memory, with or without a cache and a small
limit of uncommitted writes) and on a dict. `StoreModel` has the events of the task.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from support.tasks.store_model import (
    LARGE_BUDGET,
    SMALL_BUDGET,
    SOURCE,
    Copy,
    LoggedRecord,
    StoreModel,
    batches,
    run_model,
)

from millstream.record import ValueAndTimestamp
from millstream.serdes import BYTES, JSON, LONG
from millstream.state.builders.store_builder import KeyValueStoreBuilder
from millstream.state.caches.cache_entries import FlushedChanges
from millstream.state.task_stores import TaskStores

keys = st.one_of(
    st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"]),
    st.binary(max_size=2),
)
numbers = st.integers(0, 5)


class KeyValueModel(StoreModel):
    """A store with a value per key."""

    kind: Any = "rocksdb"
    timestamped = False

    @initialize(
        caching=st.booleans(),
        cache_bytes=st.sampled_from([1, 200, 1_000_000]),
        exactly_once=st.booleans(),
        waiting_bytes=st.sampled_from([SMALL_BUDGET, LARGE_BUDGET]),
        mutable=st.booleans(),
    )
    def start(
        self,
        caching: bool,
        cache_bytes: int,
        exactly_once: bool,
        waiting_bytes: int,
        mutable: bool,
    ) -> None:
        #: The last forwarded value of each key.
        self.downstream: dict[bytes, Any] = {}
        self.value_serde: Any = JSON if mutable else LONG
        self.begin(
            KeyValueStoreBuilder(
                "s",
                self.kind,
                BYTES,
                self.value_serde,
                self.timestamped,
                caching,
                max_entries=1_000 if self.kind == "lru" else None,
            ),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
            cache_bytes=cache_bytes,
        )

    def on_opened(self) -> None:
        self.store = self.stores.store("s")
        self.cache = self.stores.caches().get("s")
        if self.cache is not None:
            self.cache.forwards_changes = self.timestamped
            self.cache.sends_old_values = True
        # Downstream state after a crash is not modeled; it starts with the store's content.
        self.downstream = dict(self.model)

    def replay(self, records: Sequence[LoggedRecord]) -> Any:
        state: dict[bytes, Any] = {}
        for record in records:
            value = self.value_serde.deserialize("", record.value)
            if value is None:
                state.pop(record.key, None)
            elif self.timestamped:
                state[record.key] = ValueAndTimestamp(value, record.timestamp)
            else:
                state[record.key] = value
        return state

    def read_content(self, stores: TaskStores) -> Any:
        return dict(stores.store("s").all())

    def value(self, number: int) -> Any:
        time = self.tick()
        return ValueAndTimestamp(number, time - number) if self.timestamped else number

    def forward(self, changes: FlushedChanges | None) -> None:
        if changes is None:
            return
        assert changes.old_values is not None
        assert len(set(changes.keys)) == len(changes.keys)
        columns = zip(
            changes.keys, changes.new_values, changes.old_values, changes.timestamps, strict=True
        )
        for key, new, old, timestamp in columns:
            known = self.downstream.pop(key, None)
            assert old == (None if known is None else known.value)
            if new is not None:
                self.downstream[key] = ValueAndTimestamp(new, timestamp)

    def on_flushed(self) -> None:
        if self.cache is not None and self.cache.forwards_changes:
            assert self.downstream == self.model

    def between(self, lo: bytes | None, hi: bytes | None) -> list[tuple[bytes, Any]]:
        return sorted(
            (
                (key, value)
                for key, value in self.model.items()
                if (lo is None or key >= lo) and (hi is None or key <= hi)
            ),
            key=lambda pair: pair[0],
        )

    def expected(self, pairs: list[tuple[bytes, Any]]) -> Iterator[tuple[bytes, Any]]:
        """The later results of an iterator over these pairs."""
        if self.kind != "in_memory":
            yield from pairs
            return
        # Like Kafka Streams: the keys at the time of the call, with the current values.
        for key, _ in pairs:
            if key in self.model:
                yield key, self.model[key]

    @rule(key=keys, number=numbers)
    def put(self, key: bytes, number: int) -> None:
        value = self.value(number)
        self.store.put(key, value)
        self.model[key] = value

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.tick()
        assert self.store.delete(key) == self.model.pop(key, None)

    @rule(key=keys, number=numbers)
    def put_if_absent(self, key: bytes, number: int) -> None:
        value = self.value(number)
        assert self.store.put_if_absent(key, value) == self.model.get(key)
        self.model.setdefault(key, value)

    @rule(items=st.lists(st.tuples(keys, st.none() | numbers), max_size=8))
    def put_all(self, items: list[tuple[bytes, int | None]]) -> None:
        values = [(key, None if n is None else self.value(n)) for key, n in items]
        self.store.put_all(values)
        for key, value in values:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(changed=st.lists(st.tuples(keys, st.none() | numbers), max_size=8))
    @precondition(lambda self: self.timestamped)
    def change_as_an_operator(self, changed: list[tuple[bytes, int | None]]) -> None:
        for key, number in changed:
            timestamp = self.tick()
            if self.cache is None:
                self.stores.table("s").write_many([key], [number], [timestamp])
            else:
                entry = self.cache.entries.get(key) or self.cache.load(key)
                known = self.model.get(key)
                assert entry.value == (None if known is None else known.value)
                assert known is None or entry.timestamp == known.timestamp
                self.cache.change(entry, number, timestamp, SOURCE, 0)
            if number is None:
                self.model.pop(key, None)
            else:
                self.model[key] = ValueAndTimestamp(number, timestamp)
        if self.cache is not None:
            self.forward(self.cache.evict())

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(requested_keys=st.lists(keys, max_size=6))
    @precondition(lambda self: self.timestamped)
    def read_many(self, requested_keys: list[bytes]) -> None:
        assert self.stores.table("s").read_many(requested_keys) == [
            self.model.get(key) for key in requested_keys
        ]

    @rule(lo=st.none() | keys, hi=st.none() | keys, reverse=st.booleans(), later=st.booleans())
    def range(self, lo: bytes | None, hi: bytes | None, reverse: bool, later: bool) -> None:
        found = self.store.reverse_range(lo, hi) if reverse else self.store.range(lo, hi)
        pairs = self.between(lo, hi)
        self.compare(found, pairs[::-1] if reverse else pairs, later)

    @rule(prefix=keys, later=st.booleans())
    def prefix_scan(self, prefix: bytes, later: bool) -> None:
        pairs = [pair for pair in self.between(None, None) if pair[0].startswith(prefix)]
        self.compare(self.store.prefix_scan(prefix, BYTES), pairs, later)

    def compare(self, found: Any, pairs: list[tuple[bytes, Any]], later: bool) -> None:
        # With a cache on an in-memory store, only one of the two sees later writes.
        if later and not (self.kind == "in_memory" and self.cache is not None):
            self.keep_open(found, self.expected(pairs))
        else:
            assert list(found) == pairs


class LRUModel(StoreModel):
    """A map that evicts the least recently used entries, without a cache, which would keep them.

    Like in Kafka Streams, evictions of a timestamped store are not logged: a reader of the
    changelog evicts entries itself, without the order of reads. So compaction would change them.
    """

    timestamped = False
    compacts = False

    @initialize(entries=st.integers(1, 6), exactly_once=st.booleans())
    def start(self, entries: int, exactly_once: bool) -> None:
        self.entries = entries
        #: Formerly active stores, with their content and the number of logged records at that time.
        self.demoted: list[tuple[Any, OrderedDict[bytes, Any], int]] = []
        builder = KeyValueStoreBuilder(
            "s", "lru", BYTES, LONG, self.timestamped, max_entries=entries
        )
        self.begin(builder, exactly_once=exactly_once)

    def on_opened(self) -> None:
        self.store = self.stores.store("s")
        self.model = self.entries_of(self.store, self.log.history)

    def entries_of(self, store: Any, records: Sequence[LoggedRecord]) -> OrderedDict[bytes, Any]:
        """The entries of a store that has read these records of its changelog.

        A store that was active and has stayed open also evicts in the order of its reads, which the
        changelog does not contain.
        """
        for demoted, state, logged in self.demoted:
            if demoted is store:
                return self.replayed(OrderedDict(state), records[logged:])
        return self.replay(records)

    def on_disk(self, copy: Copy) -> Any:
        return self.entries_of(copy.stores.store("s"), self.log.before(copy.start))

    @rule(batch=batches)
    @precondition(lambda self: self.standby is not None)
    def swap_roles(self, batch: int) -> None:
        others = [each for each in self.demoted if each[0] is not self.store]
        self.demoted = [*others, (self.store, OrderedDict(self.model), len(self.log.history))]
        super().swap_roles(batch)

    def replay(self, records: Sequence[LoggedRecord]) -> OrderedDict[bytes, Any]:
        return self.replayed(OrderedDict(), records)

    def replayed(
        self, state: OrderedDict[bytes, Any], records: Sequence[LoggedRecord]
    ) -> OrderedDict[bytes, Any]:
        for record in records:
            value: Any = LONG.deserialize("", record.value)
            if value is not None and self.timestamped:
                value = ValueAndTimestamp(value, record.timestamp)
            self.use(state, record.key, value)
        return state

    def read_content(self, stores: TaskStores) -> Any:
        return dict(stores.store("s").all())

    def expected_content(self, model: Any) -> Any:
        return dict(model)

    def use(self, state: OrderedDict[bytes, Any], key: bytes, value: Any) -> None:
        state.pop(key, None)
        if value is not None:
            state[key] = value
            if len(state) > self.entries:
                state.popitem(last=False)

    def value(self, number: int | None) -> Any:
        time = self.tick()
        if number is None:
            return None
        return ValueAndTimestamp(number, time) if self.timestamped else number

    @rule(key=keys, number=st.none() | numbers)
    def put(self, key: bytes, number: int | None) -> None:
        value = self.value(number)
        self.store.put(key, value)
        self.use(self.model, key, value)

    @rule(items=st.lists(st.tuples(keys, st.none() | numbers), max_size=8))
    def put_all(self, items: list[tuple[bytes, int | None]]) -> None:
        values = [(key, self.value(number)) for key, number in items]
        self.store.put_all(values)
        for key, value in values:
            self.use(self.model, key, value)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)
        if key in self.model:
            self.model.move_to_end(key)

    @rule(key=keys, number=numbers)
    def put_if_absent(self, key: bytes, number: int) -> None:
        value = self.value(number)
        assert self.store.put_if_absent(key, value) == self.model.get(key)
        self.use(self.model, key, self.model.get(key, value))

    @rule(lo=st.none() | keys, hi=st.none() | keys, reverse=st.booleans(), later=st.booleans())
    def range(self, lo: bytes | None, hi: bytes | None, reverse: bool, later: bool) -> None:
        found = self.store.reverse_range(lo, hi) if reverse else self.store.range(lo, hi)
        pairs = sorted(
            pair
            for pair in self.model.items()
            if (lo is None or pair[0] >= lo) and (hi is None or pair[0] <= hi)
        )
        pairs = pairs[::-1] if reverse else pairs
        if later:
            self.keep_open(found, iter(pairs))
        else:
            assert list(found) == pairs

    @invariant()
    def has_its_size(self) -> None:
        if self.active is not None:
            assert self.store.approximate_num_entries() == len(self.model) <= self.entries


@pytest.mark.parametrize("timestamped", [False, True], ids=["plain", "timestamped"])
@pytest.mark.parametrize("kind", ["rocksdb", "in_memory", "lru"])
def test_a_store_matches_a_dict(kind: str, timestamped: bool) -> None:
    """An LRU map also matches a dict while its capacity is large enough."""
    run_model(KeyValueModel, examples=15, kind=kind, timestamped=timestamped)


@pytest.mark.parametrize("timestamped", [False, True], ids=["plain", "timestamped"])
def test_an_lru_store_matches_a_dict_of_the_last_used_entries(timestamped: bool) -> None:
    run_model(LRUModel, examples=20, timestamped=timestamped)


def test_reads_before_a_demotion_count_in_later_evictions() -> None:
    """Evictions of a timestamped store are not logged: a standby evicts in its own order."""
    model: Any = type("Timestamped", (LRUModel,), {"timestamped": True, "steps": 0})()
    model.start(entries=3, exactly_once=True)
    model.start_standby(empty_disk=False)
    for key in (b"", b"a", b"b"):
        model.put_if_absent(key=key, number=0)
    model.get(key=b"")
    former = model.active
    model.swap_roles(batch=1)
    model.put_if_absent(key=b"c", number=0)
    assert set(model.read_content(model.active.stores)) == {b"a", b"b", b"c"}
    model.swap_roles(batch=1)
    assert model.active is former
    assert set(model.read_content(former.stores)) == {b"", b"b", b"c"}
    model.teardown()
