"""Goal: a key-value store is a dict, however it is layered, and after a crash it is the dict of its
last commit, or of its whole changelog once restored.

Method: random operations on a real store (RocksDB or memory, cached or not, spilling or not),
against a dict. Crashes reopen from disk; restoration replays the changelog.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from millstream.record import Headers, TaskId, TopicPartition, ValueAndTimestamp
from millstream.serdes import BYTES, JSON, LONG
from millstream.state.builders import KeyValueStoreBuilder
from millstream.state.cache_entries import CacheBudget, FlushedChanges
from millstream.state.directory import StateDirectory
from millstream.state.task_stores import TaskStores

CHANGELOG = TopicPartition("app-s-changelog", 0)
SOURCE = TopicPartition("in", 0)

keys = st.one_of(
    st.sampled_from([b"", b"a", b"a\x00", b"ab", b"b", b"\xff", b"\xff\xff"]),
    st.binary(max_size=2),
)
numbers = st.integers(0, 5)


class Context:
    timestamp = 0
    place: TopicPartition | None = SOURCE
    offset = 0
    headers: Headers = ()


class StoreModel(RuleBasedStateMachine):
    """One store, the dict it should be, and what its changelog says."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="millstream-state-"))
        self.context = Context()
        self.log: list[tuple[bytes, bytes | None, int]] = []
        self.model: dict[bytes, Any] = {}
        #: What downstream has been told of each key.
        self.downstream: dict[bytes, Any] = {}
        self.stores: TaskStores | None = None

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        self.log += zip(keys, values, timestamps, strict=True)

    @initialize(
        kind=st.sampled_from(["rocksdb", "in_memory"]),
        timestamped=st.booleans(),
        caching=st.booleans(),
        cache_bytes=st.sampled_from([1, 200, 1_000_000]),
        exactly_once=st.booleans(),
        overlay_bytes=st.sampled_from([30, 1_000_000]),
        mutable=st.booleans(),
    )
    def start(
        self,
        kind: Any,
        timestamped: bool,
        caching: bool,
        cache_bytes: int,
        exactly_once: bool,
        overlay_bytes: int,
        mutable: bool,
    ) -> None:
        self.builder = KeyValueStoreBuilder(
            "s", kind, BYTES, JSON if mutable else LONG, timestamped, caching
        )
        self.cache_bytes = cache_bytes
        self.exactly_once = exactly_once
        self.overlay_bytes = overlay_bytes
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
            exactly_once=self.exactly_once,
            uncommitted_max_bytes=self.overlay_bytes,
        )
        self.stores.open()
        self.store = self.stores.store("s")
        self.cache = self.stores.caches().get("s")
        if self.cache is not None:
            self.cache.forwards_changes = self.builder.timestamped
            self.cache.sends_old_values = True

    def value(self, number: int) -> Any:
        self.context.timestamp += 1
        if self.builder.timestamped:
            return ValueAndTimestamp(number, self.context.timestamp - number)
        return number

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

    # --- operations ----------------------------------------------------------------------------

    @rule(key=keys, number=numbers)
    def put(self, key: bytes, number: int) -> None:
        value = self.value(number)
        self.store.put(key, value)
        self.model[key] = value

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.context.timestamp += 1
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
    @precondition(lambda self: self.builder.timestamped)
    def change_as_an_operator(self, changed: list[tuple[bytes, int | None]]) -> None:
        assert self.stores is not None
        for key, number in changed:
            timestamp = self.context.timestamp = self.context.timestamp + 1
            if self.cache is None:
                self.stores.table("s").write_many([key], [number], [timestamp])
            else:
                entry = self.cache.entries.get(key) or self.cache.load(key)
                known = self.model.get(key)
                assert entry.value == (None if known is None else known.value)
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

    @rule(wanted=st.lists(keys, max_size=6))
    @precondition(lambda self: self.builder.timestamped)
    def read_many(self, wanted: list[bytes]) -> None:
        assert self.stores is not None
        assert self.stores.table("s").read_many(wanted) == [self.model.get(key) for key in wanted]

    @rule(lo=st.none() | keys, hi=st.none() | keys, reverse=st.booleans())
    def range(self, lo: bytes | None, hi: bytes | None, reverse: bool) -> None:
        found = list(self.store.reverse_range(lo, hi) if reverse else self.store.range(lo, hi))
        assert found == sorted(
            (
                (key, value)
                for key, value in self.model.items()
                if (lo is None or key >= lo) and (hi is None or key <= hi)
            ),
            key=lambda pair: pair[0],
            reverse=reverse,
        )

    @rule(prefix=keys)
    def prefix_scan(self, prefix: bytes) -> None:
        assert list(self.store.prefix_scan(prefix, BYTES)) == sorted(
            (pair for pair in self.model.items() if pair[0].startswith(prefix)),
            key=lambda pair: pair[0],
        )

    # --- life ----------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        assert self.stores is not None
        self.stores.flush_caches(lambda name, changes: self.forward(changes))
        if self.cache is not None and self.cache.forwards_changes:
            assert self.downstream == self.model

    @rule()
    def commit(self) -> None:
        assert self.stores is not None
        self.flush()
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
        if self.exactly_once or not self.builder.persistent:
            # On disk is the state of the last commit, neither more nor less.
            assert dict(self.store.all()) == self.logged(start)
        for first in range(start, len(self.log), batch):
            records = self.log[first : first + batch]
            restorer.restore_batch(
                [key for key, _, _ in records],
                [value for _, value, _ in records],
                [timestamp for _, _, timestamp in records],
                range(first, first + len(records)),
            )
        self.model = self.logged(len(self.log))
        # Downstream of a crash is not modelled: it is told anew what the store holds.
        self.downstream = dict(self.model)

    def logged(self, end: int) -> dict[bytes, Any]:
        """What the changelog says up to an offset."""
        serde = self.builder.value_serde
        assert serde is not None
        state: dict[bytes, Any] = {}
        for key, data, timestamp in self.log[:end]:
            value = serde.deserialize("", data)
            if data is None:
                state.pop(key, None)
            elif self.builder.timestamped:
                state[key] = ValueAndTimestamp(value, timestamp)
            else:
                state[key] = value
        return state

    @invariant()
    def within_bounds(self) -> None:
        if self.stores is not None and not self.exactly_once:
            assert self.stores.uncommitted_bytes <= self.overlay_bytes

    def teardown(self) -> None:
        if self.stores is not None:
            self.stores.close(clean=False)
        shutil.rmtree(self.directory)


StoreModel.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_store_is_a_dict = StoreModel.TestCase
