"""The jobs on Quix Streams, with one process.

Without a cache, each record has a result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import marks
import orjson
from arguments import Arguments, parse
from computations import PASS_ABOVE, WINDOW_MS, cents
from quixstreams import Application
from quixstreams.models.serializers import Deserializer, Serializer

WORDS_OF_A_LINE = 8
_LONG = struct.Struct(">q")


class MarkingDeserializer(Deserializer):  # type: ignore[misc]
    """Decodes values, and marks the first one and the last expected one, if any."""

    def __init__(self, decode: Callable[[bytes], Any], path: str, expected: int) -> None:
        super().__init__()
        self._decode = decode
        self._path = path
        self._expected = expected
        self._seen = 0

    def __call__(self, value: bytes, ctx: Any) -> Any:
        self._seen += 1
        if self._seen == 1:
            marks.put(self._path, "first")
        if self._seen == self._expected:
            marks.put(self._path, "last")
        return self._decode(value)


class FunctionSerializer(Serializer):  # type: ignore[misc]
    """Encodes values with a function."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode

    def __call__(self, value: Any, ctx: Any) -> bytes:
        return self._encode(value)


class Jobs:
    """The topology of each job, on one application."""

    def __init__(self, app: Application, arguments: Arguments) -> None:
        self._app = app
        self._arguments = arguments

    def build(self) -> None:
        """Build the topology of the job."""
        getattr(self, f"_{self._arguments.job}")()

    def _stateless(self) -> None:
        def billed(event: dict[str, Any]) -> dict[str, Any]:
            return {**event, "cents": cents(event["amount"])}

        events = self._input(orjson.loads)
        events = events.filter(lambda event: event["amount"] > PASS_ABOVE).apply(billed)
        events.to_topic(self._output(orjson.dumps))

    def _count(self) -> None:
        self._counted(self._input(bytes))

    def _rekeyed(self) -> None:
        events = self._input(orjson.loads, expected=0)
        loads = MarkingDeserializer(orjson.loads, self._arguments.marks, self._arguments.records)
        self._counted(
            events.group_by(
                lambda event: event["user"],
                name="counts",
                value_deserializer=loads,
                value_serializer=FunctionSerializer(orjson.dumps),
                key_deserializer="str",
                key_serializer="str",
            )
        )

    def _wordcount(self) -> None:
        words = self._input(bytes.decode, expected=0).apply(
            lambda line: line.split(" "), expand=True
        )
        steps = self._arguments.records * WORDS_OF_A_LINE
        self._counted(
            words.group_by(
                lambda word: word,
                name="counts",
                value_deserializer=MarkingDeserializer(bytes.decode, self._arguments.marks, steps),
                value_serializer="str",
                key_deserializer="str",
                key_serializer="str",
            )
        )

    def _sum(self) -> None:
        def add(event: dict[str, Any], state: Any) -> int:
            total: int = state.get("total", 0) + cents(event["amount"])
            state.set("total", total)
            return total

        events = self._input(orjson.loads).apply(add, stateful=True)
        events.to_topic(self._output(_LONG.pack))

    def _window(self) -> None:
        def keyed(window: dict[str, Any], key: bytes, _time: int, _headers: Any) -> Any:
            return key + _LONG.pack(window["start"]), window["value"]

        prices = self._input(orjson.loads).apply(lambda event: cents(event["amount"]))
        sums = prices.tumbling_window(WINDOW_MS).sum().current().apply(keyed, metadata=True)
        output = self._output(lambda pair: _LONG.pack(pair[1]))
        sums.to_topic(output, key=lambda pair: pair[0])

    def _counted(self, stream: Any) -> None:
        def add(_: Any, state: Any) -> int:
            count: int = state.get("count", 0) + 1
            state.set("count", count)
            return count

        stream.apply(add, stateful=True).to_topic(self._output(_LONG.pack))

    def _input(self, decode: Callable[[bytes], Any], expected: int | None = None) -> Any:
        records = self._arguments.records if expected is None else expected
        topic = self._app.topic(
            self._arguments.input_topic,
            key_deserializer="bytes",
            value_deserializer=MarkingDeserializer(decode, self._arguments.marks, records),
        )
        return self._app.dataframe(topic)

    def _output(self, encode: Callable[[Any], bytes]) -> Any:
        return self._app.topic(
            self._arguments.output_topic,
            key_serializer=FunctionSerializer(
                lambda key: key if isinstance(key, bytes) else key.encode()
            ),
            value_serializer=FunctionSerializer(encode),
        )


def main() -> None:
    arguments = parse(__doc__)
    settings = arguments.settings
    app = Application(
        broker_address=settings["bootstrap.servers"],
        consumer_group=settings["application.id"],
        auto_offset_reset="earliest",
        state_dir=settings["state.dir"],
        commit_interval=int(settings["commit.interval.ms"]) / 1000,
        loglevel="WARNING",
        consumer_extra_config={
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 4_000_000,
        },
        producer_extra_config={
            "linger.ms": int(settings["producer.linger.ms"]),
            "batch.size": int(settings["producer.batch.size"]),
            "compression.type": settings["producer.compression.type"],
            "queue.buffering.max.messages": 500_000,
            "enable.idempotence": True,
        },
    )
    Jobs(app, arguments).build()
    app.run()


if __name__ == "__main__":
    main()
