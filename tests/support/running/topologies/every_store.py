"""An application with a store of every kind, its input, and the content of its stores."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, Final

import msgspec

from millstream import (
    EmitStrategy,
    KafkaStreams,
    KeyValueStore,
    Materialized,
    MultiVersionedKeyQuery,
    Processor,
    ProcessorContext,
    QueryableStoreTypes,
    Record,
    SessionWindows,
    StateQueryRequest,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    WindowStore,
)
from millstream.query.views import QueryableStoreType
from millstream.serdes import LONG, STRING, json_of
from support.broker.topics import InputRecord, keyed

INPUTS: Final = {"in": 3, "users": 3, "prices": 3, "places": 2}
_BEGIN_MS: Final = 1_800_000_000_000
_MINUTE: Final = timedelta(minutes=1)
_RETENTION: Final = timedelta(minutes=10)
_KEYS: Final = [f"k{number:02}" for number in range(30)]
#: Each store is a different kind: storage and changelog format.
KEY_VALUE: Final = ("counts", "seen", "plain", "recent", "users", "places")
WINDOWS: Final = ("minutes", "closed", "readings", "pairs")
SESSIONS: Final = ("visits",)
VERSIONED: Final = ("prices",)


class Seen(msgspec.Struct):
    """The aggregate of a key."""

    last: str
    times: int


SEEN: Final = json_of(Seen)


class StoreWriter(Processor[str, str, str, str]):
    """Writes its input to its own stores, with some deletions and some late records."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._plain: KeyValueStore[str, str] = context.get_state_store("plain")
        self._recent: KeyValueStore[str, str] = context.get_state_store("recent")
        self._readings: WindowStore[str, str] = context.get_state_store("readings")
        self._pairs: WindowStore[str, str] = context.get_state_store("pairs")

    def process(self, record: Record[str, str]) -> None:
        is_gone = record.value.endswith("7")
        self._plain.put(record.key, None if is_gone else record.value)
        self._recent.put(record.key, record.value)
        start = record.timestamp // 1_000 * 1_000
        self._readings.put(record.key, None if is_gone else record.value, start)
        self._pairs.put(record.key, record.value, start)


def topology(name: str) -> Topology:
    """One store of each kind; topic names begin with `name-`."""
    builder = StreamsBuilder(optimize=True)
    builder.add_state_store(
        Stores.key_value_builder(Stores.persistent_key_value("plain"), STRING, STRING)
    )
    builder.add_state_store(Stores.key_value_builder(Stores.lru_map("recent", 4), STRING, STRING))
    readings = Stores.persistent_window("readings", _RETENTION, _MINUTE)
    builder.add_state_store(Stores.window_builder(readings, STRING, STRING))
    pairs = Stores.in_memory_window("pairs", _RETENTION, _MINUTE, retain_duplicates=True)
    builder.add_state_store(Stores.window_builder(pairs, STRING, STRING))
    stream = builder.stream(f"{name}-in", key=STRING, value=STRING)
    stream.process(StoreWriter, stores=("plain", "recent", "readings", "pairs"))
    grouped = stream.group_by_key()
    grouped.count(store="counts")
    grouped.aggregate(
        lambda: Seen("", 0),
        lambda key, value, seen: Seen(value, seen.times + 1),
        store=Materialized("seen", kind="in_memory", key=STRING, value=SEEN),
    )
    hopping = TimeWindows(_MINUTE, advance=_MINUTE / 2, grace=_MINUTE)
    stored = Materialized("minutes", key=STRING, value=LONG, retention=_RETENTION)
    grouped.windowed_by(hopping).count(store=stored)
    final = grouped.windowed_by(TimeWindows(_MINUTE)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    final.count(store=Materialized("closed", key=STRING, value=LONG, retention=_RETENTION))
    sessions = grouped.windowed_by(SessionWindows(_MINUTE / 6, grace=_MINUTE))
    sessions.count(store=Materialized("visits", key=STRING, value=LONG, retention=_RETENTION))
    builder.table(f"{name}-users", key=STRING, value=STRING, store="users")
    history = Stores.persistent_versioned("prices", history_retention=_RETENTION)
    builder.table(f"{name}-prices", key=STRING, value=LONG, store=Materialized(supplier=history))
    builder.global_table(f"{name}-places", key=STRING, value=STRING, store="places")
    unlogged = Materialized("unlogged", key=STRING, value=LONG, logging=False)
    grouped.count(store=unlogged)
    return builder.build()


def records(name: str, seed: int) -> list[InputRecord]:
    """An hour of records, some of them very late, with deletions where possible."""
    chance = random.Random(seed)
    sent = []
    for number in range(1_500):
        key = chance.choice(_KEYS)
        late_ms = chance.choice([0, 0, 0, 20_000, 300_000, 1_200_000])
        time = _BEGIN_MS + max(0, number * 2_400 - late_ms)
        sent.append(keyed(f"{name}-in", 3, key, str(number), time))
    for number in range(300):
        key = chance.choice(_KEYS)
        value = None if chance.random() < 0.2 else str(number)
        time = _BEGIN_MS + number
        sent.append(keyed(f"{name}-users", 3, key, value, time))
        sent.append(InputRecord(f"{name}-places", number % 2, f"p{number % 30}", value, time))
        # The timestamps of prices jump back and forth, within the history retention and beyond.
        time += max(0, number * 10_000 - chance.choice([0, 0, 5_000, 400_000, 900_000]))
        price = None if value is None else f"\0\0\0\0\0\0\0{chr(number % 100)}"
        sent.append(keyed(f"{name}-prices", 3, key, price, time))
    return sent


def store_rows(streams: KafkaStreams, store: str) -> list[tuple[Any, ...]]:
    """The content of a store as sorted rows: key, value, and timestamp or window."""
    if store in VERSIONED:
        rows = [
            (key, version.value, version.timestamp, version.valid_to)
            for key in _KEYS
            for version in _versions(streams, store, key)
        ]
        return sorted(rows, key=repr)
    with _view(streams, store) as pairs:
        return sorted((_row(key, value) for key, value in pairs), key=repr)


def _versions(streams: KafkaStreams, store: str, key: str) -> list[Any]:
    request = StateQueryRequest.in_store(store).with_query(MultiVersionedKeyQuery(key))
    answer = streams.query(request)
    return [each for result in answer.partition_results.values() for each in result.result]


def _view(streams: KafkaStreams, store: str) -> Any:
    kinds: dict[str, QueryableStoreType[Any]] = {
        **dict.fromkeys(("counts", "seen", "users"), QueryableStoreTypes.timestamped_key_value()),
        **dict.fromkeys(("plain", "recent"), QueryableStoreTypes.key_value()),
        "places": QueryableStoreTypes.timestamped_key_value(),
        **dict.fromkeys(("minutes", "closed"), QueryableStoreTypes.timestamped_window()),
        **dict.fromkeys(("readings", "pairs"), QueryableStoreTypes.window()),
        "visits": QueryableStoreTypes.session(),
    }
    view = streams.store(store, kinds[store])
    return view.fetch_range(None, None) if store in SESSIONS else view.all()


def _row(key: Any, value: Any) -> tuple[Any, ...]:
    window = getattr(key, "window", None)
    inner = key if window is None else (key.key, window.start_ms, window.end_ms)
    return (inner, getattr(value, "value", value), getattr(value, "timestamp", None))
