"""The jobs on Millstream, one stream thread."""

from __future__ import annotations

import cProfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import asking
import marks
from arguments import Arguments, parse
from load import PASS_ABOVE, WINDOW_MS, cents

from millstream import (
    KafkaStreams,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    TopicPartition,
    Topology,
)
from millstream.runtime.states import ClientState
from millstream.serdes import BYTES, JSON, LONG, STRING, Serde


def stateless(arguments: Arguments) -> Topology:
    """Keeps the events above the threshold and adds a field: JSON in, JSON out."""
    builder = StreamsBuilder()
    (
        builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(JSON, arguments))
        .filter(lambda _, event: event["amount"] > PASS_ABOVE)
        .map_values(lambda event: {**event, "cents": cents(event["amount"])})
        .to(arguments.output_topic, key=STRING, value=JSON)
    )
    return builder.build()


def count(arguments: Arguments) -> Topology:
    """Counts the records of each key. The values are not looked at, so they stay bytes."""
    builder = StreamsBuilder()
    (
        builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(BYTES, arguments))
        .group_by_key(key=STRING, value=BYTES)
        .count(store="counts")
        .to_stream()
        .to(arguments.output_topic, key=STRING, value=LONG)
    )
    return builder.build()


def rekeyed(arguments: Arguments) -> Topology:
    """Counts the records of each user that the values name: by way of a repartition topic."""
    builder = StreamsBuilder()
    (
        builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(JSON, arguments, 0))
        .group_by(
            lambda _, event: event["user"],
            key=STRING,
            value=MarkingSerde(JSON, arguments),
            name="counts",
        )
        .count(store="counted")
        .to_stream()
        .to(arguments.output_topic, key=STRING, value=LONG)
    )
    return builder.build()


def window(arguments: Arguments) -> Topology:
    """Sums the cents of each key in each minute."""
    builder = StreamsBuilder()
    (
        builder.stream(arguments.input_topic, key=STRING, value=MarkingSerde(JSON, arguments))
        .group_by_key(key=STRING, value=JSON)
        .windowed_by(TimeWindows(timedelta(milliseconds=WINDOW_MS)))
        .aggregate(
            lambda: 0,
            lambda _, event, total: total + cents(event["amount"]),
            store=Materialized("sums", key=STRING, value=LONG),
        )
        .to_stream()
        .to(arguments.output_topic, value=LONG)
    )
    return builder.build()


class Restored:
    """Marks when each partition of a changelog begins and ends to be restored."""

    def __init__(self, file: str) -> None:
        self.file = file

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        marks.put(self.file, f"restoring {place.partition}")

    def on_batch_restored(self, place: TopicPartition, store: str, end: int, count: int) -> None:
        """Batches are not timed."""

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        marks.put(self.file, f"restored {place.partition} {total}")


class MarkingSerde(Serde[Any]):
    """Another serde, which also marks when the first and the last expected record are decoded.

    It works in the stream thread, a process of Spark's; the marks go to a file. With `profile` set
    it also profiles that thread between the two marks.
    """

    def __init__(
        self, inner: Serde[Any], arguments: Arguments, expected: int | None = None
    ) -> None:
        super().__init__(
            inner.serialize, inner.deserialize, immutable=inner.immutable, name=inner.name
        )
        self.inner = inner
        self.marks = arguments.marks
        self.expected = arguments.records if expected is None else expected
        self.profile = arguments.profile
        self.profiler: cProfile.Profile | None = None
        self.seen = 0

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[Any]:
        """Decodes a batch and counts it."""
        if self.seen == 0 and datas:
            self._first()
        values = self.inner.deserialize_many(topic, datas)
        self.seen += len(datas)
        if self.seen == self.expected:
            self._last()
        return values

    def _first(self) -> None:
        marks.put(self.marks, "first")
        if self.profile is not None:
            self.profiler = cProfile.Profile()
            self.profiler.enable()

    def _last(self) -> None:
        marks.put(self.marks, "last")
        if self.profile is not None and self.profiler is not None:
            self.profiler.disable()
            self.profiler.dump_stats(self.profile)
            self.profiler = None


def main() -> None:
    arguments = parse(__doc__)
    jobs = {"stateless": stateless, "count": count, "rekeyed": rekeyed, "window": window}
    topology = jobs[arguments.job](arguments)
    settings = dict(arguments.settings)
    rate, asked = settings.pop(asking.RATE, None), settings.pop(asking.FILE, "")
    over_http = settings.pop(asking.OVER_HTTP, "") == "true"
    silent = settings.pop(asking.SILENT, "") == "true"
    streams = KafkaStreams(topology, StreamsConfig.from_properties(settings))
    asks = None
    if rate is not None:
        asks = asking.Asking(
            streams,
            "counts",
            float(rate),
            Path(arguments.marks),
            Path(asked),
            over_http=over_http,
            silent=silent,
        )

    def on_state(new: ClientState, _: ClientState) -> None:
        if new is ClientState.RUNNING:
            marks.put(arguments.marks, "running")

    streams.set_state_listener(on_state)
    streams.set_global_state_restore_listener(Restored(arguments.marks))
    if asks is not None:
        asks.start()
    streams.run()
    if asks is not None:
        asks.close()


if __name__ == "__main__":
    main()
