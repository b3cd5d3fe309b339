"""An application whose state is queried continuously, and its instances.

It stores the number of records of each key and the id of the last one, so that an answer shows its
position. `chaos.query_checks` decides which answers are possible.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from support.broker.topics import BrokerTopics, Writer, unique
from support.machine.ports import free_port
from support.machine.scripts import Script, support_script

STORE = "last"
KEYS = [f"k{number}" for number in range(40)]


def queried_topology(name: str) -> Topology:
    """Reads `<name>-records`: keys, and ids as values."""
    builder = StreamsBuilder()
    records = builder.stream(f"{name}-records", key=STRING, value=STRING)
    records.group_by_key().aggregate(
        lambda: "0:", _counted, store=Materialized(STORE, key=STRING, value=STRING)
    )
    return builder.build()


def _counted(key: str, number: str, previous: str) -> str:
    return f"{int(previous.partition(':')[0]) + 1}:{number}"


class Queried:
    """One application and its instances, which report queries and answers.

    Args:
        settings: further settings of the application, including its `server_token`.
    """

    def __init__(
        self, kafka: EmbeddedKafka, folder: Path, partitions: int, **settings: Any
    ) -> None:
        self.name = unique("queried")
        self.records = f"{self.name}-records"
        #: All instances, including ended ones.
        self.scripts: list[Script] = []
        self._bootstrap = kafka.bootstrap_servers
        self._folder = folder
        self._settings = settings
        self._places = BrokerTopics(self._bootstrap)
        self._places.create({self.records: partitions})
        self._writer = Writer(self._bootstrap)
        self._ids = itertools.count()

    def state(self, name: str) -> Path:
        """The state directory of an instance."""
        return self._folder / name

    def start(self, name: str) -> Script:
        """Start an instance that other instances query at its own port; the caller ends it."""
        port = free_port()
        # Without this setting, other instances would not learn a loopback address.
        served = {"server_port": port, "application_server": f"127.0.0.1:{port}"}
        script = support_script(
            "queried_instance.py",
            self._bootstrap,
            self.name,
            str(self.state(name)),
            json.dumps({**self._settings, **served}),
            home=self._folder / f"run-{len(self.scripts)}-{name}",
        )
        self.scripts.append(script)
        return script

    def write(self, count: int) -> None:
        """Write this many new ids to the keys in turn, acknowledged."""
        ids = list(itertools.islice(self._ids, count))
        self._writer.write(
            self.records, ((KEYS[n * 7 % len(KEYS)].encode(), str(n).encode()) for n in ids)
        )

    @property
    def lag(self) -> int:
        """The number of uncommitted records."""
        return self._places.lag(self.name, [self.records])

    def committed(self) -> dict[int, int]:
        """The number of committed records by partition."""
        committed = self._places.committed(self.name, [self.records])
        return {place.partition: max(0, offset) for place, offset in committed.items()}

    def written(self) -> dict[int, list[tuple[int, str, int]]]:
        """All input: by partition the offset, key and id of each record."""
        found: dict[int, list[tuple[int, str, int]]] = {}
        for offset, record in self._places.read_with_offsets([self.records])[self.records]:
            assert record.key is not None
            assert record.value is not None
            read = found.setdefault(record.partition, [])
            read.append((offset, record.key.decode(), int(record.value)))
        return {partition: sorted(read) for partition, read in found.items()}

    def queries(self) -> list[dict[str, Any]]:
        """The queries and answers of all instances, in the order of each instance."""
        return [query for script in self.scripts for query in queries_of(script)]


def queries_of(script: Script) -> list[dict[str, Any]]:
    """The queries and answers of an instance."""
    return list(newest_queries(script))[::-1]


def newest_queries(script: Script) -> Iterator[dict[str, Any]]:
    """The same, newest first."""
    return (
        json.loads(line.removeprefix("query "))
        for line in list(script.lines)[::-1]
        # The last line of a killed process may be incomplete.
        if line.startswith("query {") and line.endswith("}")
    )
