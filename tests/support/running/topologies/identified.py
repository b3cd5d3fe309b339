"""Records with ids that travel through both sub-topologies, and what became of each.

The first sub-topology distributes ids to groups through a repartition topic; the second one stores
all ids of each group, with duplicates, and outputs them all with each change. The output therefore
shows whether an id was lost, and how often it was repeated: in a count of records, repeated work
would hide lost records.
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
from support.background import background
from support.broker.late_writers import late_writes
from support.broker.topics import BrokerTopics, Writer, read_all, unique
from support.waiting import wait_for

#: Enough groups that the aggregates, which grow with each id, stay short.
GROUPS = 500
#: A value that is not an id.
POISON = b"\xff"
#: The only store, unless a test needs several.
STORES = ("ids",)


def identified_topology(
    name: str,
    *,
    stores: Sequence[str] = STORES,
    kind: Any = "rocksdb",
    caching: bool = True,
    mapper: Callable[[str], str] = str,
) -> Topology:
    """The topology, whose topic names begin with a prefix.

    Args:
        stores: each of them stores all ids, and has an output topic called `<name>-<store>`.
        caching: whether only the last state of a group between two commits is output.
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
    """The state of the written ids.

    Args:
        never_output: the ids that no output record contains.
        lost: the ids that are missing in the last output of their group.
        overwritten: lost ids that were overwritten by a process after it had lost its task.
    """

    written: int
    never_output: frozenset[int]
    lost: frozenset[int]
    overwritten: frozenset[int]
    repeated: int


class Identified:
    """An application that stores ids, on its own topics."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        state_dir: Path,
        *,
        partitions: int = 4,
        stores: Sequence[str] = STORES,
        kind: Any = "rocksdb",
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
        #: The number of written ids, which are 0, 1, 2, ...
        self.written = 0
        #: The number of duplicates that the crashes so far permit.
        self.may_repeat = 0
        self._options: dict[str, Any] = {"kind": kind, "mapper": mapper}
        self._settings: dict[str, Any] = {
            "state_dir": str(state_dir),
            "commit_interval_ms": 200,
            "num_stream_threads": 2,
            "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            **settings,
        }
        self._places = BrokerTopics(self.bootstrap)
        self._writer = Writer(self.bootstrap)
        topics = [self.records, *self.outputs, self.dead_letter_queue]
        self._places.create(dict.fromkeys(topics, partitions))

    @property
    def outputs(self) -> list[str]:
        """The output topic of each store."""
        return [f"{self.application_id}-{store}" for store in self.stores]

    @property
    def dead_letter_queue(self) -> str:
        """The topic for poison records, if the application uses a dead-letter queue."""
        return f"{self.application_id}-dead"

    @property
    def changelog_topics(self) -> list[str]:
        """The changelog of each store."""
        return [f"{topic}-changelog" for topic in self.outputs]

    def topology(self) -> Topology:
        return identified_topology(self.application_id, stores=self.stores, **self._options)

    def config(self, **settings: Any) -> StreamsConfig:
        return StreamsConfig(
            application_id=self.application_id,
            bootstrap_servers=self._servers,
            **{**self._settings, **settings},
        )

    def streams(self, spark: Any = None, **settings: Any) -> KafkaStreams:
        """The application, not started."""
        return KafkaStreams(self.topology(), self.config(**settings), spark)

    def write(self, count: int) -> None:
        """Write this many new ids, acknowledged."""
        first = self.written
        self._writer.write(
            self.records, ((None, str(each).encode()) for each in range(first, first + count))
        )
        self.written += count

    @contextmanager
    def continuous_input(self, pause_s: float = 0.05) -> Iterator[None]:
        """Write 20 records after each pause until the end of the block."""
        with background(lambda: self.write(20), pause_s):
            yield

    @property
    def lag(self) -> int:
        """The number of records of both sub-topologies that are not committed."""
        counts = self._places.partition_counts(self.application_id)
        inputs = [topic for topic in (self.records, self.repartition_topic) if topic in counts]
        return self._places.lag(self.application_id, inputs)

    def open_transactions(self) -> dict[str, tuple[int, int]]:
        """Partitions whose last stable offset differs from the end: both offsets."""
        return self._places.unstable(self.application_id)

    @property
    def ends(self) -> int:
        """The number of input records of both sub-topologies so far."""
        places = self._places.ends([self.records, self.repartition_topic])
        return sum(high for _, high in places.values())

    @property
    def committed(self) -> int:
        """The number of committed records."""
        return self.ends - self.lag

    def has_output(self) -> bool:
        """Whether there is any output."""
        return any(read_all(self.bootstrap, topic) for topic in self.outputs)

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Permit duplicates of the records that are uncommitted at the beginning of the block.

        At the end of the block the application must have recovered, or must have ended.
        """
        committed = self.committed
        yield
        self.may_repeat += self.ends - committed

    def wait_committed(self, timeout_s: float = 60) -> None:
        """Wait until all input is committed by both sub-topologies."""

        def is_done() -> bool:
            # The first sub-topology finishes first: its output is complete then.
            return self._places.lag(self.application_id, [self.records]) == 0 and self.lag == 0

        wait_for(is_done, timeout_s, f"all input of {self.application_id} is committed")

    def account(self) -> Account:
        """The state of the ids in the worst store."""
        accounts = [self._account(topic) for topic in self.outputs]
        return Account(
            written=self.written,
            never_output=frozenset[int]().union(*(each.never_output for each in accounts)),
            lost=frozenset[int]().union(*(each.lost for each in accounts)),
            overwritten=frozenset[int]().union(*(each.overwritten for each in accounts)),
            repeated=max(each.repeated for each in accounts),
        )

    def check(self, timeout_s: float = 60) -> Account:
        """Wait until everything is committed; then no id may be lost, and there may be no more
        duplicates than the crashes so far permit.

        The check does not wait any longer, because committed records must have been written.
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

    def where_repeated(self) -> dict[int, list[str]]:
        """For some duplicate ids, the places of all their records in the topics before, and the
        first output that contains them twice."""
        twice: dict[int, list[str]] = {}
        for message in self._places.read_messages(self.outputs):
            counts = Counter(map(int, (message.value() or b"").split()))
            for each in (each for each, count in counts.items() if count > 1):
                if len(twice) < 30:
                    twice.setdefault(each, [f"twice in {_place_of(message)}"])
        for message in self._places.read_messages([self.records, self.repartition_topic]):
            value = message.value()
            if value is not None and value.isdigit() and int(value) in twice:
                twice[int(value)].append(_place_of(message))
        return twice

    def _overwritten(self, output: str, lost: frozenset[int]) -> frozenset[int]:
        """The lost ids that were output until a late writer wrote an older state."""
        if not lost:
            return lost
        keys_of_lost = {f"g{each % GROUPS}".encode() for each in lost}
        records = self._places.read_with_offsets([output])[output]
        last: dict[bytes | None, set[int]] = {}
        found: set[int] = set()
        for late, (_, record) in zip(
            late_writes(self._kafka, output, records), records, strict=True
        ):
            if record.key in keys_of_lost:
                ids = set(map(int, (record.value or b"").split()))
                gone = last.get(record.key, set()) - ids
                found = (found - ids) | gone if late else found - ids - gone
                last[record.key] = ids
        return lost & found

    def out_of_order(self) -> int:
        """The number of ids, in the worst store, that come before an earlier one of the same
        group and input partition."""
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
        """Write a poison record."""
        self._writer.write(self.records, [(None, POISON)])

    def dead_letters(self) -> int:
        """The number of records in the dead-letter queue, all of which must be poison records."""
        records = read_all(self.bootstrap, self.dead_letter_queue)
        assert {value for _, value in records} <= {POISON}, records[:3]
        return len(records)

    def _account(self, output: str) -> Account:
        records = [
            ((key or b"").decode(), (value or b"").decode().split())
            for key, value in read_all(self.bootstrap, output)
        ]
        ever = {int(each) for _, ids in records for each in ids}
        last = Counter(int(each) for ids in dict(records).values() for each in ids)
        every = range(self.written)
        assert ever <= set(every), "unknown ids"
        lost = frozenset(every) - last.keys()
        return Account(
            written=self.written,
            never_output=frozenset(every) - ever,
            lost=lost,
            overwritten=self._overwritten(output, lost),
            repeated=last.total() - len(last),
        )
