"""Goal: a versioned store is a dict of all versions there ever were, of which history shows a part;
after a crash it is what its changelog says.

Method: random versions, late ones and deletions among them, against such dicts. What happens to the
task is `StoreModel`'s. Deletions at the very time of the latest version are left out: they may
leave no trace, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from support.tasks.store_model import LITTLE, MUCH, Logged, StoreModel, run_model

from millstream.serdes import BYTES
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.state.task_stores import TaskStores
from millstream.state.versioned.versions import NOT_PUT, VALID_TO_UNDEFINED

# A key that is the beginning of another one, even with a time appended.
KEYS = [b"", b"a", b"a\x00", b"a" + bytes(8), b"b"]
TIMES = range(-1, 62)

keys = st.sampled_from(KEYS)
values = st.sampled_from([b"", b"x", b"y", None])
times = st.integers(0, 60)

#: A value, and from when it is valid.
Found = tuple[bytes, int] | None


@dataclass
class Versions:
    """What a store should be like."""

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
    """A store of several versions of each key. Its changelog keeps what history needs."""

    compacts = False

    @initialize(
        history_ms=st.integers(0, 30),
        segment_ms=st.sampled_from([1, 4, 7, 100]),
        exactly_once=st.booleans(),
        waiting_bytes=st.sampled_from([LITTLE, MUCH]),
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

    def opened(self) -> None:
        self.store = self.stores.store("s")
        self.table = self.stores.table("s")

    def replay(self, records: Sequence[Logged]) -> Versions:
        model = Versions(self.history_ms)
        for record in records:
            model.put(record.key, record.value, record.timestamp)
        return model

    def look(self, stores: TaskStores) -> Any:
        store = stores.store("s")
        latest = {key: found_in(store.get(key)) for key in KEYS}
        return latest, {
            (key, time): found_in(store.get(key, time)) for key in KEYS for time in TIMES
        }

    def shown(self, model: Versions) -> Any:
        latest = {key: model.get(key) for key in KEYS}
        return latest, {(key, time): model.get_as_of(key, time) for key in KEYS for time in TIMES}

    @rule(key=keys, value=values, timestamp=times)
    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.tick()
        if value is None and self.model.is_latest(key, timestamp):
            return
        assert self.store.put(key, value, timestamp) == self.note(key, value, timestamp)

    @rule(puts=st.lists(st.tuples(keys, values, times), max_size=6))
    def put_as_an_operator(self, puts: list[tuple[bytes, bytes | None, int]]) -> None:
        taken, valid_to = [], []
        for key, value, timestamp in puts:
            if value is not None or not self.model.is_latest(key, timestamp):
                taken.append((key, value, timestamp))
                valid_to.append(self.note(key, value, timestamp))
        columns = [list(column) for column in zip(*taken, strict=True)] or [[], [], []]
        assert self.table.write_many(*columns) == valid_to
        assert self.dropped == self.late

    @rule(key=keys, timestamp=times)
    def delete(self, key: bytes, timestamp: int) -> None:
        if self.model.is_latest(key, timestamp):
            return
        known = self.model.get_as_of(key, timestamp)
        is_late = self.note(key, None, timestamp) == NOT_PUT
        assert found_in(self.store.delete(key, timestamp)) == (None if is_late else known)

    @rule(key=keys, timestamp=times)
    def get(self, key: bytes, timestamp: int) -> None:
        assert found_in(self.store.get(key)) == self.model.get(key)
        assert found_in(self.store.get(key, timestamp)) == self.model.get_as_of(key, timestamp)

    @rule(wanted=st.lists(keys, max_size=4))
    def read_many(self, wanted: list[bytes]) -> None:
        assert self.table.read_many(wanted) == [self.model.get(key) for key in wanted]

    @rule()
    def look_at_everything(self) -> None:
        assert self.look(self.stores) == self.shown(self.model)

    def note(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        valid_to: int = self.model.put(key, value, timestamp)
        self.late += valid_to == NOT_PUT
        return valid_to


def found_in(record: Any) -> Found:
    return None if record is None else (record.value, record.timestamp)


def test_a_versioned_store_is_a_dict_of_versions() -> None:
    run_model(VersionedModel, examples=15)
