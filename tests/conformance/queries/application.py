"""The Millstream application of a scenario; `tests/java/RecordQueries.java` has the same one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from conformance.queries.scenarios import Scenario, Step

from millstream import (
    Materialized,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    ValueAndTimestamp,
    Window,
    Windowed,
)
from millstream.serdes import LONG, STRING

_HOUR = timedelta(hours=1)


class Writer(Processor[str, str, None, None]):
    """Executes the commands in the values of records on stores.

    Args:
        stores: the store specifications of the scenario, by name.
    """

    def __init__(self, stores: Mapping[str, Step]) -> None:
        self._stores = stores

    def process(self, record: Record[str, str]) -> None:
        for command in json.loads(record.value):
            self._execute(command)

    def _execute(self, command: list[Any]) -> None:
        if command[0] == "commit":
            self.context.commit()
        elif command[0] == "later":
            interval = timedelta(milliseconds=command[1])
            self.context.schedule(
                interval, PunctuationType.STREAM_TIME, lambda now: self._execute(command[2])
            )
        else:
            self._write(*command)

    def _write(self, operation: str, name: str, key: Any, value: Any = None, *rest: int) -> None:
        store: Any = self.context.get_state_store(name)
        if value is not None and self._stores[name]["kind"].startswith("timestamped"):
            value = ValueAndTimestamp(value, rest[-1])
        match operation:
            case "put":
                store.put(key, value)
            case "put_if_absent":
                store.put_if_absent(key, value)
            case "delete":
                store.delete(key)
            case "get":
                store.get(key)
            case "put_window" | "put_version":
                store.put(key, value, rest[0])
            case "put_session":
                store.put(Windowed(key, Window(rest[0], rest[1])), value)
            case _:
                raise AssertionError(operation)


def topology(scenario: Scenario, prefix: str = "") -> Topology:
    """Build the topology of a scenario.

    Args:
        scenario: the scenario.
        prefix: of the names of its topics.
    """
    builder = StreamsBuilder()
    stores = {store["name"]: store for store in scenario["stores"]}
    for store in scenario["stores"]:
        builder.add_state_store(_store(store))
    streams: dict[str, Any] = {}
    for table in scenario["tables"]:
        _add(table, builder, streams, prefix)
    tables = [t["name"] for t in scenario["tables"] if not t["kind"].startswith("global")]
    builder.stream(f"{prefix}in", key=STRING, value=STRING).process(
        lambda: Writer(stores), stores=[*stores, *tables]
    )
    return builder.build()


def _store(store: Step) -> Any:
    name, memory = store["name"], store.get("memory", False)
    serdes = (LONG if store.get("key") == "long" else STRING, STRING)
    retention = timedelta(milliseconds=store.get("retention_ms", 0))
    size = timedelta(milliseconds=store.get("window_ms", 0))
    timed = store["kind"].startswith("timestamped")
    builder: Any
    match store["kind"].removeprefix("timestamped_"):
        case "key_value":
            if "max_entries" in store:
                supplier = Stores.lru_map(name, store["max_entries"])
            elif memory:
                supplier = Stores.in_memory_key_value(name)
            else:
                supplier = Stores.persistent_key_value(name)
            make = Stores.timestamped_key_value_builder if timed else Stores.key_value_builder
            builder = make(supplier, *serdes)
        case "window":
            window = Stores.in_memory_window if memory else Stores.persistent_window
            kept = window(name, retention, size, store.get("duplicates", False))
            build = Stores.timestamped_window_builder if timed else Stores.window_builder
            builder = build(kept, *serdes)
        case "session":
            session = Stores.in_memory_session if memory else Stores.persistent_session
            builder = Stores.session_builder(session(name, retention), *serdes)
        case "versioned":
            history = timedelta(milliseconds=store["history_ms"])
            return Stores.versioned_builder(Stores.persistent_versioned(name, history), *serdes)
        case kind:
            raise AssertionError(kind)
    return builder.with_caching(store.get("caching", False))


def _add(table: Step, builder: StreamsBuilder, streams: dict[str, Any], prefix: str) -> None:
    topic, name = f"{prefix}{table['topic']}", table["name"]
    kept: Materialized[Any, Any] = Materialized(name, caching=table.get("caching", True))
    match table["kind"]:
        case "table":
            builder.table(topic, key=STRING, value=STRING, store=kept)
            return
        case "versioned_table":
            history = timedelta(milliseconds=table["history_ms"])
            versions = Stores.persistent_versioned(name, history)
            builder.table(topic, key=STRING, value=STRING, store=versions)
            return
        case "global_table":
            builder.global_table(topic, key=STRING, value=STRING, store=name)
            return
    if topic not in streams:
        streams[topic] = builder.stream(topic, key=STRING, value=STRING)
    grouped = streams[topic].group_by_key()
    match table["kind"]:
        case "count":
            grouped.count(store=kept)
        case "windows":
            windows = TimeWindows(timedelta(milliseconds=table["window_ms"]), grace=_HOUR)
            grouped.windowed_by(windows).count(store=kept)
        case "sessions":
            sessions = SessionWindows(timedelta(milliseconds=table["gap_ms"]), grace=_HOUR)
            grouped.windowed_by(sessions).count(store=kept)
        case kind:
            raise AssertionError(kind)
