"""The application of tests/java/Interop.java in Python, with the same topology, names and
answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from millstream import (
    Materialized,
    Processor,
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

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
GAP_MS = 5_000

#: The stores to which the processor writes.
WRITTEN = ("kv", "timed", "windows", "timed-windows", "duplicates", "sessions", "versions")
#: The stores of the DSL in the same task.
AGGREGATED = ("counts", "minutes", "visits")


class StoreProcessor(Processor[str, str, str, str]):
    """Writes each record to every kind of store; its answer to a query record contains their
    content."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.stores = {name: context.get_state_store(name) for name in (*WRITTEN, *AGGREGATED)}

    def process(self, record: Record[str, str]) -> None:
        key, value, time = record.key, record.value, record.timestamp
        if key == "?":
            # The value contains the query's number and the time of the oldest requested version.
            contents = "\n".join(self.contents(int(value.split("@")[1])))
            self.context.forward(record.with_key(value).with_value(contents))
            return
        second = time - time % 1_000
        stored = None if value.startswith("delete") else value
        timed = None if stored is None else ValueAndTimestamp(value, time)
        stores = self.stores
        stores["kv"].put(key, stored)
        stores["timed"].put(key, timed)
        stores["windows"].put(key, stored, second)
        stores["timed-windows"].put(key, timed, second)
        stores["duplicates"].put(key, value, second)
        stores["versions"].put(key, stored, time)
        self.extend_session(key, value, time)

    def extend_session(self, key: str, value: str, time: int) -> None:
        sessions = self.stores["sessions"]
        start = end = time
        values = []
        found = list(sessions.find_sessions(key, time - GAP_MS, time + GAP_MS))
        for session, before in found:
            start = min(start, session.window.start_ms)
            end = max(end, session.window.end_ms)
            values.append(before)
            sessions.remove(session)
        sessions.put(Windowed(key, Window(start, end)), "+".join([*values, value]))

    def contents(self, since: int) -> Iterator[str]:
        for name in ("kv", "timed"):
            for key, value in self.stores[name].all():
                yield f"{name} {key} {text(value)}"
        for name in ("windows", "timed-windows", "duplicates", "minutes"):
            for window, value in self.stores[name].all():
                yield f"{name} {window.key}@{window.window.start_ms} {text(value)}"
        for key, value in self.stores["counts"].all():
            yield f"counts {key} {text(value)}"
            for name in ("sessions", "visits"):
                for session, content in self.stores[name].fetch(key):
                    start, end = session.window
                    yield f"{name} {key}@{start}-{end} {content}"
            yield f"versions {key} {text(self.stores['versions'].get(key))}"
            for time in range(since, since + 40_001, 10_000):
                yield f"versions {key}@{time} {text(self.stores['versions'].get(key, time))}"


def text(value: Any) -> str:
    """A value, with its timestamp if it has one."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value.value}@{value.timestamp}"


def topology(records: str, answers: str, words: str) -> Topology:
    """Stores records, answers query records, and counts words.

    Args:
        records: the topic of keys and words. Query records have the key `?`.
        answers: the topic of answers.
        words: the topic of the words' counts.
    """
    builder = StreamsBuilder()
    for store in stores():
        builder.add_state_store(store)
    stream = builder.stream(records, key=STRING, value=STRING)
    data = stream.filter_not(lambda key, value: key == "?")
    data.group_by_key(key=STRING, value=STRING).count(store="counts")
    data.group_by_key(key=STRING, value=STRING).windowed_by(
        TimeWindows(timedelta(minutes=1))
    ).count(store=Materialized("minutes", retention=HOUR))
    data.group_by_key(key=STRING, value=STRING).windowed_by(
        SessionWindows(timedelta(milliseconds=GAP_MS), grace=HOUR)
    ).count(store="visits")
    counted = data.group_by(lambda key, value: value, key=STRING, value=STRING, name="by-word")
    counted.count(store=Materialized("words")).to_stream().to(words, key=STRING, value=LONG)
    stream.process(StoreProcessor, stores=[*WRITTEN, *AGGREGATED]).to(
        answers, key=STRING, value=STRING
    )
    return builder.build()


def stores() -> Iterator[Any]:
    yield Stores.key_value_builder(Stores.persistent_key_value("kv"), STRING, STRING)
    yield Stores.timestamped_key_value_builder(Stores.persistent_key_value("timed"), STRING, STRING)
    yield Stores.window_builder(Stores.persistent_window("windows", HOUR, SECOND), STRING, STRING)
    yield Stores.timestamped_window_builder(
        Stores.persistent_window("timed-windows", HOUR, SECOND), STRING, STRING
    ).with_caching(True)
    yield Stores.window_builder(
        Stores.in_memory_window("duplicates", HOUR, SECOND, retain_duplicates=True), STRING, STRING
    )
    yield Stores.session_builder(Stores.persistent_session("sessions", HOUR), STRING, STRING)
    yield Stores.versioned_builder(Stores.persistent_versioned("versions", HOUR), STRING, STRING)
