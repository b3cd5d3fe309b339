"""Records with ids that travel through both sub-topologies, and what became of each.

The first sub-topology deals ids out to groups, which a repartition topic brings together; the
second one keeps every id that its group has met, once for each time, and tells them all with each
change. So the output says of each id whether it was lost, and how often it was repeated: a count of
records would let repeated work hide what was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka
from support.broker.late_writers import late_writes
from support.broker.records import Places
from support.broker.topics import Writer, read_all, read_messages, unique
from support.meanwhile import meanwhile
from support.waiting import wait_for

#: So many that the aggregates, which grow with each id, stay short.
GROUPS = 500
#: What is no id.
POISON = b"\xff"
#: The one store, unless a test asks for several.
STORES = ("ids",)


def identified_topology(
    name: str,
    *,
    stores: Sequence[str] = STORES,
    kind: Any = "rocksdb",
    caching: bool = True,
    mapper: Callable[[str], str] = str,
) -> Topology:
    """The topology whose topics begin with a name.

    Args:
        name: of the application.
        stores: each of them keeps all ids, and has an output topic called `<name>-<store>`.
        kind: of the stores.
        caching: whether only the last state of a group between two commits is told.
        mapper: a function of the user's, which each id goes through.
    """
    builder = StreamsBuilder()
    groups = (
        builder.stream(f"{name}-records", key=STRING, value=STRING)
        .map_values(mapper)
        .group_by(lambda _, each: f"g{int(each) % GROUPS}", key=STRING, value=STRING, name="groups")
    )
    for store in stores:
        (
            groups.aggregate(
                str,
                lambda _, each, known: f"{known} {each}".lstrip(),
                store=Materialized(store, kind=kind, key=STRING, value=STRING, caching=caching),
            )
            .to_stream()
            .to(f"{name}-{store}", key=STRING, value=STRING)
        )
    return builder.build()


def _place_of(message: Message) -> str:
    return f"{message.topic()}-{message.partition()} at {message.offset()}"


@dataclass(frozen=True)
class Account:
    """What became of the ids that were written.

    Args:
        written: how many.
        untold: the ids that no output record has.
        lost: the ids that are not in the last output of their group.
        overwritten: those of them that a process wrote over which had lost its task before.
        repeated: how many times too often ids are in there.
    """

    written: int
    untold: frozenset[int]
    lost: frozenset[int]
    overwritten: frozenset[int]
    repeated: int


class Identified:
    """One application that keeps ids, on topics of its own.

    Args:
        kafka: the broker.
        state_dir: where its state goes.
        partitions: of the input topic.
        stores: of the second sub-topology.
        kind: of the stores.
        caching: of the stores.
        mapper: a function of the user's in the first sub-topology.
        settings: further ones of the application.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        state_dir: Path,
        *,
        partitions: int = 4,
        stores: Sequence[str] = STORES,
        kind: Any = "rocksdb",
        caching: bool = True,
        mapper: Callable[[str], str] = str,
        **settings: Any,
    ) -> None:
        self.bootstrap = kafka.unsecured_servers
        self._servers = kafka.bootstrap_servers
        self._kafka = kafka
        self.application_id = unique("identified")
        self.records = f"{self.application_id}-records"
        self.repartition_topic = f"{self.application_id}-groups-repartition"
        self.stores = tuple(stores)
        #: How many ids there are: 0, 1, 2, ...
        self.written = 0
        #: How often ids may be there too often, after the crashes so far.
        self.may_repeat = 0
        self._options: dict[str, Any] = {"kind": kind, "caching": caching, "mapper": mapper}
        self._settings: dict[str, Any] = {
            "state_dir": str(state_dir),
            "commit_interval_ms": 200,
            "num_stream_threads": 2,
            "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            **settings,
        }
        self._places = Places(self.bootstrap)
        self._writer = Writer(self.bootstrap)
        topics = [self.records, *self.outputs, self.dead_letter_queue]
        self._places.create(dict.fromkeys(topics, partitions))

    @property
    def outputs(self) -> list[str]:
        """The output topic of each store."""
        return [f"{self.application_id}-{store}" for store in self.stores]

    @property
    def dead_letter_queue(self) -> str:
        """Where records go that are no ids, if the application is told to."""
        return f"{self.application_id}-dead"

    @property
    def changelog_topics(self) -> list[str]:
        """The changelog of each store."""
        return [f"{topic}-changelog" for topic in self.outputs]

    def topology(self) -> Topology:
        """The application's topology."""
        return identified_topology(self.application_id, stores=self.stores, **self._options)

    def config(self, **settings: Any) -> StreamsConfig:
        """The application's settings."""
        return StreamsConfig(
            application_id=self.application_id,
            bootstrap_servers=self._servers,
            **{**self._settings, **settings},
        )

    def streams(self, spark: Any = None, **settings: Any) -> KafkaStreams:
        """The application, not started."""
        return KafkaStreams(self.topology(), self.config(**settings), spark)

    def write(self, count: int) -> None:
        """Write that many new ids, acknowledged."""
        first = self.written
        self._writer.write(
            self.records, ((None, str(each).encode()) for each in range(first, first + count))
        )
        self.written += count

    @contextmanager
    def arriving(self, pause_s: float = 0.05) -> Iterator[None]:
        """Input that goes on all the while: 20 records after each pause."""
        with meanwhile(lambda: self.write(20), pause_s):
            yield

    @property
    def lag(self) -> int:
        """How many records of both sub-topologies are not committed."""
        counts = self._places.partition_counts(self.application_id)
        inputs = [topic for topic in (self.records, self.repartition_topic) if topic in counts]
        return self._places.lag(self.application_id, inputs)

    def open_transactions(self) -> dict[str, tuple[int, int]]:
        """Where the last stable offset of a partition is not its end: the two."""
        return self._places.unstable(self.application_id)

    @property
    def ends(self) -> int:
        """How many records both sub-topologies have been given so far."""
        places = self._places.ends([self.records, self.repartition_topic])
        return sum(high for _, high in places.values())

    @property
    def committed(self) -> int:
        """How many of them are committed."""
        return self.ends - self.lag

    def has_told(self) -> bool:
        """Whether anything has come out."""
        return any(read_all(self.bootstrap, topic) for topic in self.outputs)

    @contextmanager
    def fault(self) -> Iterator[None]:
        """What goes wrong inside may cost the repetition of what was not committed when it began.

        The application must be there again at the end, or gone.
        """
        committed = self.committed
        yield
        self.may_repeat += self.ends - committed

    def wait_committed(self, timeout_s: float = 60) -> None:
        """Wait until everything that was written is committed by both sub-topologies."""

        def is_done() -> bool:
            # The first sub-topology is done before the second one: what it wrote is there then.
            return self._places.lag(self.application_id, [self.records]) == 0 and self.lag == 0

        wait_for(is_done, timeout_s, f"everything is committed of {self.application_id}")

    def account(self) -> Account:
        """What became of the ids, in the store for which it is worst."""
        accounts = [self._account(topic) for topic in self.outputs]
        return Account(
            written=self.written,
            untold=frozenset[int]().union(*(each.untold for each in accounts)),
            lost=frozenset[int]().union(*(each.lost for each in accounts)),
            overwritten=frozenset[int]().union(*(each.overwritten for each in accounts)),
            repeated=max(each.repeated for each in accounts),
        )

    def check(self, timeout_s: float = 60) -> Account:
        """Wait until everything is committed; nothing may be lost then, and no more be repeated
        than the crashes so far have cost.

        Not a moment later: what is committed must have been written.
        """
        self.wait_committed(timeout_s)
        account = self.account()
        assert not account.lost, f"lost: {sorted(account.lost)}"
        assert account.repeated <= self.may_repeat, (
            account.repeated,
            self.may_repeat,
            self.where_repeated(),
        )
        return account

    def where_repeated(self, most: int = 30) -> dict[int, list[str]]:
        """Of ids that are there too often, some: where each is in every topic on its way, with the
        place of the first output that has it twice."""
        twice: dict[int, list[str]] = {}
        for output in self.outputs:
            for message in read_messages(self.bootstrap, output):
                counts = Counter(map(int, (message.value() or b"").split()))
                for each in (each for each, count in counts.items() if count > 1):
                    if len(twice) < most:
                        twice.setdefault(each, [f"twice in {_place_of(message)}"])
        for topic in (self.records, self.repartition_topic):
            for message in read_messages(self.bootstrap, topic):
                value = message.value()
                if value is not None and value.isdigit() and int(value) in twice:
                    twice[int(value)].append(_place_of(message))
        return twice

    def _overwritten(self, output: str, lost: frozenset[int]) -> frozenset[int]:
        """Those of the ids that were told, until a late writer told an older state."""
        if not lost:
            return lost
        wanted = {f"g{each % GROUPS}".encode() for each in lost}
        told = self._places.read_with_offsets([output])[output]
        last: dict[bytes | None, set[int]] = {}
        found: set[int] = set()
        for late, (_, record) in zip(late_writes(self._kafka, output, told), told, strict=True):
            if record.key in wanted:
                ids = set(map(int, (record.value or b"").split()))
                gone = last.get(record.key, set()) - ids
                found = (found - ids) | gone if late else found - ids - gone
                last[record.key] = ids
        return lost & found

    def out_of_order(self) -> int:
        """How often, in the store for which it is worst, an id comes before one of the same group
        that was written ahead of it, into the same partition."""
        where = {
            int(value): partition
            for partition, _, value, _ in self._places.read([self.records])[self.records]
            if value is not None and value.isdigit()
        }
        return max(self._out_of_order(topic, where) for topic in self.outputs)

    def _out_of_order(self, output: str, where: Mapping[int, int]) -> int:
        found = 0
        for ids in dict(read_all(self.bootstrap, output)).values():
            last: dict[int, int] = {}
            for each in map(int, (ids or b"").split()):
                found += each < last.get(where[each], 0)
                last[where[each]] = each
        return found

    def poison(self) -> None:
        """Write a record that is no id."""
        self._writer.write(self.records, [(None, POISON)])

    def dead_letters(self) -> int:
        """How many records are in the dead-letter queue; they must be those."""
        records = read_all(self.bootstrap, self.dead_letter_queue)
        assert {value for _, value in records} <= {POISON}, records[:3]
        return len(records)

    def _account(self, output: str) -> Account:
        told = [
            ((key or b"").decode(), (value or b"").decode().split())
            for key, value in read_all(self.bootstrap, output)
        ]
        ever = {int(each) for _, ids in told for each in ids}
        last = Counter(int(each) for ids in dict(told).values() for each in ids)
        every = range(self.written)
        assert ever <= set(every), "ids that nobody has written"
        lost = frozenset(every) - last.keys()
        return Account(
            written=self.written,
            untold=frozenset(every) - ever,
            lost=lost,
            overwritten=self._overwritten(output, lost),
            repeated=last.total() - len(last),
        )
