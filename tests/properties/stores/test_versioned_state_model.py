"""Goal: a versioned store matches a dict of all versions, within its history retention; after a
crash, it matches its changelog.

Method: random versions, including late ones and deletions, in the store and in such a dict.
`StoreModel` has the events of the task. Deletions at the timestamp of the latest version are left
out: they may have no effect, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from support.tasks.store_model import (
    LARGE_BUDGET,
    SMALL_BUDGET,
    LoggedRecord,
    StoreModel,
    run_model,
)

from millstream.serdes import BYTES
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.task_stores import TaskStores
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED

# Some keys are prefixes of others, even with an appended timestamp.
KEYS = [b"", b"a", b"a\x00", b"a" + bytes(8), b"b"]
TIMES = range(-1, 62)

keys = st.sampled_from(KEYS)
values = st.sampled_from([b"", b"x", b"y", None])
times = st.integers(0, 60)

#: A value and the start of its validity.
Found = tuple[bytes, int] | None


@dataclass
class Versions:
    """The expected content of a store."""

    history_ms: int
    stream_time: int = -1
    all: dict[bytes, dict[int, bytes | None]] = field(default_factory=dict)

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        if timestamp < self.stream_time - self.history_ms:
            return NOT_PUT
        self.stream_time = max(self.stream_time, timestamp)
        versions = self.all.setdefault(key, {})
        versions[timestamp] = value
        return min((time for time in versions if time > timestamp), default=VALID_TO_UNDEFINED)

    def is_latest(self, key: bytes, timestamp: int) -> bool:
        versions = self.all.get(key, {})
        return timestamp in versions and timestamp == max(versions)

    def get(self, key: bytes) -> Found:
        return self.get_as_of(key, max(self.all.get(key, (0,))))

    def get_as_of(self, key: bytes, timestamp: int) -> Found:
        versions = self.all.get(key, {})
        began = max((time for time in versions if time <= timestamp), default=None)
        expired = timestamp < self.stream_time - self.history_ms
        if began is None or (expired and began != max(versions)):
            return None
        value = versions[began]
        return None if value is None else (value, began)


class VersionedModel(StoreModel):
    """A versioned store. Its changelog keeps all versions that the history needs."""

    compacts = False

    @initialize(
        history_ms=st.integers(0, 30),
        segment_ms=st.sampled_from([1, 4, 7, 100]),
        exactly_once=st.booleans(),
        waiting_bytes=st.sampled_from([SMALL_BUDGET, LARGE_BUDGET]),
    )
    def start(
        self, history_ms: int, segment_ms: int, exactly_once: bool, waiting_bytes: int
    ) -> None:
        self.history_ms = history_ms
        self.late = 0
        self.begin(
            VersionedStoreBuilder("s", history_ms, segment_ms, BYTES, BYTES),
            exactly_once=exactly_once,
            waiting_bytes=waiting_bytes,
        )

    def on_opened(self) -> None:
        self.store = self.stores.store("s")
        self.table = self.stores.table("s")

    def replay(self, records: Sequence[LoggedRecord]) -> Versions:
        model = Versions(self.history_ms)
        for record in records:
            model.put(record.key, record.value, record.timestamp)
        return model

    def read_content(self, stores: TaskStores) -> Any:
        store = stores.store("s")
        latest = {key: found_in(store.get(key)) for key in KEYS}
        return latest, {
            (key, time): found_in(store.get(key, time)) for key in KEYS for time in TIMES
        }

    def expected_content(self, model: Versions) -> Any:
        latest = {key: model.get(key) for key in KEYS}
        return latest, {(key, time): model.get_as_of(key, time) for key in KEYS for time in TIMES}

    @rule(key=keys, value=values, timestamp=times)
    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.tick()
        if value is None and self.model.is_latest(key, timestamp):
            return
        assert self.store.put(key, value, timestamp) == self.put_in_model(key, value, timestamp)

    @rule(puts=st.lists(st.tuples(keys, values, times), max_size=6))
    def put_as_an_operator(self, puts: list[tuple[bytes, bytes | None, int]]) -> None:
        taken, valid_to = [], []
        for key, value, timestamp in puts:
            if value is not None or not self.model.is_latest(key, timestamp):
                taken.append((key, value, timestamp))
                valid_to.append(self.put_in_model(key, value, timestamp))
        columns = [list(column) for column in zip(*taken, strict=True)] or [[], [], []]
        assert self.table.write_many(*columns) == valid_to
        assert self.dropped == self.late

    @rule(key=keys, timestamp=times)
    def delete(self, key: bytes, timestamp: int) -> None:
        if self.model.is_latest(key, timestamp):
            return
        known = self.model.get_as_of(key, timestamp)
        is_late = self.put_in_model(key, None, timestamp) == NOT_PUT
        assert found_in(self.store.delete(key, timestamp)) == (None if is_late else known)

    @rule(key=keys, timestamp=times)
    def get(self, key: bytes, timestamp: int) -> None:
        assert found_in(self.store.get(key)) == self.model.get(key)
        assert found_in(self.store.get(key, timestamp)) == self.model.get_as_of(key, timestamp)

    @rule(requested_keys=st.lists(keys, max_size=4))
    def read_many(self, requested_keys: list[bytes]) -> None:
        assert self.table.read_many(requested_keys) == [
            self.model.get(key) for key in requested_keys
        ]

    @rule()
    def read_all(self) -> None:
        assert self.read_content(self.stores) == self.expected_content(self.model)

    def put_in_model(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        valid_to: int = self.model.put(key, value, timestamp)
        self.late += valid_to == NOT_PUT
        return valid_to


def found_in(record: Any) -> Found:
    return None if record is None else (record.value, record.timestamp)


def test_a_versioned_store_matches_a_dict_of_versions() -> None:
    run_model(VersionedModel, examples=15)
