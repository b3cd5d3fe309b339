"""The jobs on faust-streaming, with one worker.

Without a cache, each record has a result.
"""

from __future__ import annotations

import struct
from typing import Any

import faust
import marks
import orjson
from arguments import Arguments, parse
from computations import PASS_ABOVE, WINDOW_MS, cents

WORDS_OF_A_LINE = 8
_LONG = struct.Struct(">q")


class Progress:
    """Marks the first record and, at the expected number of records, the last one."""

    def __init__(self, arguments: Arguments, expected: int) -> None:
        self._marks = arguments.marks
        self._expected = expected
        self._has_begun = False
        self._done = 0

    def begin(self) -> None:
        """Mark the first record, on the first call."""
        if not self._has_begun:
            self._has_begun = True
            marks.put(self._marks, "first")

    def add(self) -> None:
        """Count a record."""
        self._done += 1
        if self._done == self._expected:
            marks.put(self._marks, "last")


class Jobs:
    """The agent of each job."""

    def __init__(self, app: Any, arguments: Arguments, partitions: int) -> None:
        steps = arguments.records * (WORDS_OF_A_LINE if arguments.job == "wordcount" else 1)
        self._app = app
        self._progress = Progress(arguments, steps)
        self._partitions = partitions
        self._input = self._topic(arguments.input_topic)
        self._output = self._topic(arguments.output_topic)

    def _topic(self, name: str, **options: Any) -> Any:
        return self._app.topic(
            name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            **options,
        )

    def _table(self, key_type: type | None = bytes) -> Any:
        return self._app.Table(
            "results", default=int, partitions=self._partitions, key_type=key_type, value_type=int
        )

    def stateless(self) -> None:
        """Keep the events above the threshold, and add a field."""

        async def work(stream: Any) -> None:
            async for key, value in stream.items():
                self._progress.begin()
                event = orjson.loads(value)
                if event["amount"] > PASS_ABOVE:
                    event["cents"] = cents(event["amount"])
                    await self._output.send(key=key, value=orjson.dumps(event))
                self._progress.add()

        self._app.agent(self._input)(work)

    def count(self) -> None:
        """Count by key."""
        self._counted(self._input)

    def sum(self) -> None:
        """Sum by key."""
        table = self._table()

        async def work(stream: Any) -> None:
            async for key, value in stream.items():
                self._progress.begin()
                table[key] = total = table[key] + cents(orjson.loads(value)["amount"])
                await self._output.send(key=key, value=_LONG.pack(total))
                self._progress.add()

        self._app.agent(self._input)(work)

    def window(self) -> None:
        """Sum by key and minute."""
        # The keys of the store are pairs of key and window, which can only be written as JSON.
        table = self._table(None).tumbling(WINDOW_MS / 1000)

        async def work(stream: Any) -> None:
            async for event in stream.events():
                self._progress.begin()
                price = cents(orjson.loads(event.value)["amount"])
                user = event.key.decode()
                table[user] += price
                total = table[user].value()
                time_ms = round(event.message.timestamp * 1000)
                key = event.key + _LONG.pack(time_ms - time_ms % WINDOW_MS)
                await self._output.send(key=key, value=_LONG.pack(total))
                self._progress.add()

        self._app.agent(self._input)(work)

    def rekeyed(self) -> None:
        """Count by the user in the value."""
        repartitioned = self._repartition_topic()

        async def work(stream: Any) -> None:
            async for value in stream:
                self._progress.begin()
                user = orjson.loads(value)["user"].encode()
                await repartitioned.send(key=user, value=value)

        self._app.agent(self._input)(work)
        self._counted(repartitioned)

    def wordcount(self) -> None:
        """Count words."""
        repartitioned = self._repartition_topic()

        async def work(stream: Any) -> None:
            async for value in stream:
                self._progress.begin()
                for word in value.split(b" "):
                    await repartitioned.send(key=word, value=word)

        self._app.agent(self._input)(work)
        self._counted(repartitioned)

    def _repartition_topic(self) -> Any:
        name = f"{self._app.conf.id}-counts-repartition"
        return self._topic(name, internal=True, partitions=self._partitions)

    def _counted(self, topic: Any) -> None:
        table = self._table()

        async def counting(stream: Any) -> None:
            async for event in stream.events():
                self._progress.begin()
                key = event.key
                table[key] = count = table[key] + 1
                await self._output.send(key=key, value=_LONG.pack(count))
                self._progress.add()

        self._app.agent(topic)(counting)


def main() -> None:
    arguments = parse(__doc__)
    settings = arguments.settings
    partitions = 4
    app = faust.App(
        settings["application.id"],
        broker=f"kafka://{settings['bootstrap.servers']}",
        store="rocksdb://",
        datadir=settings["state.dir"],
        topic_partitions=partitions,
        topic_replication_factor=1,
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=int(settings["commit.interval.ms"]) / 1000,
        broker_max_poll_records=5_000,
        producer_acks=-1,
        producer_linger_ms=int(settings["producer.linger.ms"]),
        producer_max_batch_size=int(settings["producer.batch.size"]),
        web_enabled=False,
        topic_disable_leader=True,
    )
    getattr(Jobs(app, arguments, partitions), arguments.job)()
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    main()
