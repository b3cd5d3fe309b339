"""An application that is asked for its state all the while, and the instances that run it.

It keeps of each key how many of its records it has seen, and the id of the last one, so an answer
says how far it was. `chaos.query_checks` knows which answers can be true.
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
from support.broker.records import Places
from support.broker.topics import Writer, unique
from support.machine.ports import free_port
from support.machine.scripts import Script

STORE = "last"
KEYS = [f"k{number}" for number in range(40)]
_ROOM = Path(__file__).parent


def queried_topology(name: str) -> Topology:
    """Reads `<name>-records`: keys, and ids as values."""
    builder = StreamsBuilder()
    records = builder.stream(f"{name}-records", key=STRING, value=STRING)
    records.group_by_key().aggregate(
        lambda: "0:", _counted, store=Materialized(STORE, key=STRING, value=STRING)
    )
    return builder.build()


def _counted(key: str, number: str, known: str) -> str:
    return f"{int(known.partition(':')[0]) + 1}:{number}"


class Queried:
    """One application and its instances, which say what they were told.

    Args:
        kafka: the broker.
        folder: an empty one, for the state of each instance.
        partitions: of its input.
        settings: further settings of the application, its `server_token` among them.
    """

    def __init__(
        self, kafka: EmbeddedKafka, folder: Path, partitions: int, **settings: Any
    ) -> None:
        self.name = unique("queried")
        self.records = f"{self.name}-records"
        #: All that were ever started.
        self.scripts: list[Script] = []
        self._bootstrap = kafka.bootstrap_servers
        self._folder = folder
        self._settings = settings
        self._places = Places(self._bootstrap)
        self._places.create({self.records: partitions})
        self._writer = Writer(self._bootstrap)
        self._ids = itertools.count()

    def state(self, name: str) -> Path:
        """Where an instance has its state."""
        return self._folder / name

    def started(self, name: str) -> Script:
        """An instance, asked by the others at a port of its own; whoever starts it ends it."""
        port = free_port()
        # Of an address of this machine alone the others are told by the settings only.
        served = {"server_port": port, "application_server": f"127.0.0.1:{port}"}
        script = Script(
            _ROOM / "queried_instance.py",
            self._bootstrap,
            self.name,
            str(self.state(name)),
            json.dumps({**self._settings, **served}),
            home=self._folder / f"run-{len(self.scripts)}-{name}",
            imports=_ROOM.parents[1],
        )
        self.scripts.append(script)
        return script

    def write(self, count: int) -> None:
        """Write that many new ids, acknowledged, to the keys in turn."""
        ids = list(itertools.islice(self._ids, count))
        self._writer.write(
            self.records, ((KEYS[n * 7 % len(KEYS)].encode(), str(n).encode()) for n in ids)
        )

    @property
    def lag(self) -> int:
        """How many records are not committed."""
        return self._places.lag(self.name, [self.records])

    def committed(self) -> dict[int, int]:
        """By partition, how many of its records are committed."""
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

    def asked(self) -> list[dict[str, Any]]:
        """What was asked and said, of all instances that ever were, each in its order."""
        return [asked for script in self.scripts for asked in answers_of(script)]


def answers_of(script: Script) -> list[dict[str, Any]]:
    """What an instance was asked, and said."""
    return list(newest_answers_of(script))[::-1]


def newest_answers_of(script: Script) -> Iterator[dict[str, Any]]:
    """The same, the newest first."""
    return (
        json.loads(line.removeprefix("asked "))
        for line in list(script.lines)[::-1]
        # A process that is killed may have said half of a line.
        if line.startswith("asked {") and line.endswith("}")
    )
