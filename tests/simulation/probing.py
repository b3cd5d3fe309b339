"""Asks a real broker, or the simulated cluster, what the simulation relies on.

`PYTHONPATH=tests python -m simulation.probing` asks a real broker and writes the answers down, in
`answers.json`, with which the simulated cluster is compared.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from kafka import KafkaConsumer

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.kafka.member.link import MemberLink, open_link
from millstream.kafka.protocols import Admin, Consumer, Producer, TransactionalProducer
from millstream.kafka.settings.clients import kafka_python_settings, librdkafka_settings
from millstream.record import TopicPartition
from millstream.waker import Waker
from simulation.broker.cluster import Cluster
from simulation.broker.group import GroupCoordinator
from simulation.clients.admin import SimulatedAdmin
from simulation.clients.consumer import SimulatedConsumer
from simulation.clients.event_loop import SimulatedLink, tell_time
from simulation.clients.producer import SimulatedProducer
from simulation.clients.requests import Waits
from simulation.clients.transactions import SimulatedTransactions
from simulation.group_probe import Answers, Prober, one_member, static_members, two_members
from simulation.log_probe import Transaction, deleted_records, transactions, unknown_topics
from simulation.offsets_probe import Offsets, offsets_in_transactions
from simulation.scheduler import Process, Scheduler

ANSWERS: Final = Path(__file__).with_name("answers.json")
_TIMEOUT_MS: Final = 60_000
_GROUPS: Final[dict[str, tuple[Callable[..., Answers], int]]] = {
    "one member": (one_member, 1),
    "two members": (two_members, 2),
    "static members": (static_members, 2),
}


class Simulated:
    """The simulated cluster, to be asked. What is asked runs as the director of a world."""

    def __init__(self) -> None:
        self._scheduler = Scheduler(1, lambda line: None)
        tell_time(self._scheduler)
        self._cluster = Cluster(self._scheduler, brokers=1)
        self._process = Process("probe")
        self._waits = Waits(self._scheduler, Waker())

    def link(self) -> MemberLink:
        return SimulatedLink(self._cluster, self._process, KafkaConsumer.DEFAULT_CONFIG)

    def admin(self) -> Admin:
        return SimulatedAdmin(self._cluster, self._process)

    def consumer(self, *, committed: bool) -> Consumer:
        return SimulatedConsumer(
            self._cluster, self._process, self._waits, read_committed=committed
        )

    def producer(self) -> Producer:
        return SimulatedProducer(
            self._cluster, self._process, {"delivery.timeout.ms": 30_000}, 30_000
        )

    def transaction(self, name: str) -> Transaction:
        return SimulatedTransaction(self._cluster, name)

    def transactional(self, name: str) -> TransactionalProducer:
        settings = {"delivery.timeout.ms": 30_000, "transaction.timeout.ms": 60_000}
        return SimulatedTransactions(self._cluster, self._process, settings, 30_000, name)

    def name(self, what: str) -> str:
        """A name that nobody else uses."""
        return what

    def new_group(self, name: str) -> str:
        """The one group that there is begins anew."""
        self._cluster.group = GroupCoordinator(self._scheduler, lambda: True)
        return name


class SimulatedTransaction:
    """A transactional producer on the simulated cluster, without what is between."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._id, self._epoch = cluster.transactions.init(name, 60_000)
        self._sequence = 0

    def write(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        self._cluster.transactions.begin(self._name, self._epoch, place)
        rows = [(None, value, 1, None) for value in values]
        log = self._cluster.logs[place]
        log.append(rows, self._id, self._epoch, self._sequence, transactional=True)
        self._sequence += len(rows)

    def end(self, *, commit: bool) -> None:
        self._cluster.transactions.end(self._name, self._epoch, commit=commit)


class Real:
    """A real broker, to be asked.

    Args:
        bootstrap: its address.
        undo: closes what is opened.
    """

    def __init__(self, bootstrap: str, undo: ExitStack) -> None:
        self._config = StreamsConfig(application_id="probe", bootstrap_servers=bootstrap)
        self._undo = undo

    def link(self) -> MemberLink:
        settings = kafka_python_settings(self._config, client_id="probe")
        settings.pop("group_id")
        link = open_link(settings, group_id="probe", client_id="probe", stopped=lambda: False)
        self._undo.callback(link.close, 5_000)
        return link

    def admin(self) -> Admin:
        admin = ClusterAdmin(librdkafka_settings(self._config, "admin", "probe"))
        self._undo.callback(admin.close)
        return admin

    def consumer(self, *, committed: bool) -> Consumer:
        settings = librdkafka_settings(self._config, "main_consumer", "probe")
        settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
        consumer = RecordConsumer(settings, SystemClock())
        self._undo.callback(consumer.close)
        return consumer

    def producer(self) -> RecordProducer:
        producer = RecordProducer(self._producing())
        self._undo.callback(producer.close)
        return producer

    def _producing(self) -> dict[str, Any]:
        settings = librdkafka_settings(self._config, "producer", "probe")
        return {**settings, "delivery.timeout.ms": 30_000}

    def transaction(self, name: str) -> Transaction:
        return RealTransaction(self.transactional(self.name(name)))

    def transactional(self, name: str) -> TransactionalRecordProducer:
        producer = TransactionalRecordProducer(self._producing(), name)
        self._undo.callback(producer.close)
        return producer

    def name(self, what: str) -> str:
        """A name that nobody else uses."""
        return f"{what}-{uuid.uuid4().hex[:8]}"

    def new_group(self, name: str) -> str:
        """A group that nobody else uses."""
        return self.name(name)


class RealTransaction:
    """A transactional producer."""

    def __init__(self, producer: TransactionalRecordProducer) -> None:
        self._producer = producer
        producer.init_transactions(_TIMEOUT_MS)

    def write(self, place: TopicPartition, values: Sequence[bytes]) -> None:
        keys, times = [None] * len(values), [1] * len(values)
        self._producer.send_many(place.topic, place.partition, keys, values, times)
        self._producer.flush(_TIMEOUT_MS)

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(_TIMEOUT_MS)
        else:
            self._producer.purge(_TIMEOUT_MS)


def probe(world: Simulated | Real) -> dict[str, Answers]:
    """Every question and its answer."""
    told: dict[str, Answers] = {}
    admin = world.admin()
    topic = world.name("probe")
    admin.create_topics([(topic, 1, {})])
    for name, (questions, members) in _GROUPS.items():
        group = world.new_group(name.replace(" ", "-"))
        probers = [Prober(world.link(), group, topic) for _ in range(members)]
        told[name] = questions(*probers)
    group, name = world.new_group("offsets"), world.name("offsets")
    told["offsets in transactions"] = offsets_in_transactions(
        Prober(world.link(), group, topic),
        Prober(world.link(), group, topic),
        Offsets(lambda: world.transactional(name), group, TopicPartition(topic, 0)),
    )
    told["unknown topics"] = unknown_topics(admin, world.consumer(committed=False))
    place = TopicPartition(world.name("deleted"), 0)
    admin.create_topics([(place.topic, 1, {})])
    told["deleted records"] = deleted_records(
        place, admin, lambda: world.consumer(committed=False), world.producer()
    )
    place = TopicPartition(world.name("transactions"), 0)
    admin.create_topics([(place.topic, 1, {})])
    told["transactions"] = transactions(
        place,
        admin,
        world.consumer(committed=True),
        world.consumer(committed=False),
        world.transaction("probe"),
    )
    return told


@contextmanager
def real(bootstrap: str) -> Iterator[Real]:
    """A real broker, until this is left."""
    with ExitStack() as undo:
        yield Real(bootstrap, undo)


def recorded() -> dict[str, Answers]:
    """What the real broker answered when it was asked last."""
    answers: dict[str, Answers] = json.loads(ANSWERS.read_text())
    return answers


def main() -> int:
    """Write down what a real broker answers."""
    from millstream.embedded.broker import EmbeddedKafka

    with EmbeddedKafka() as broker, real(broker.bootstrap_servers) as world:
        ANSWERS.write_text(json.dumps(probe(world), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
