"""Sends the requests that the simulation relies on to a real broker or the simulated cluster.

`PYTHONPATH=tests python -m simulation.probes.probing` records a real broker's answers in
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

from millstream.clock import SystemClock, Waker
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.membership.connections import MemberConnections, open_connections
from millstream.kafka.protocols import Admin, Consumer, Producer, TransactionalProducer
from millstream.kafka.settings.librdkafka_settings import kafka_python_settings, librdkafka_settings
from millstream.record import TopicPartition
from simulation.broker.cluster import Cluster
from simulation.broker.group import GroupCoordinator
from simulation.clients.admin import SimulatedAdmin
from simulation.clients.consumer import SimulatedConsumer
from simulation.clients.event_loop import SimulatedConnections, use_simulated_time
from simulation.clients.producer import SimulatedProducer
from simulation.clients.requests import WaitPoint
from simulation.clients.transactions import SimulatedTransactions
from simulation.probes.group_probe import Answers, Prober, one_member, static_members, two_members
from simulation.probes.log_probe import Transaction, deleted_records, transactions, unknown_topics
from simulation.probes.offsets_probe import TransactionalOffsets, offsets_in_transactions
from simulation.scheduler import Process, Scheduler

ANSWERS: Final = Path(__file__).with_name("answers.json")
_TIMEOUT_MS: Final = 60_000
_GROUPS: Final[dict[str, tuple[Callable[..., Answers], int]]] = {
    "one member": (one_member, 1),
    "two members": (two_members, 2),
    "static members": (static_members, 2),
}


class Simulated:
    """The simulated cluster as the target of requests, which run as the director of a scheduler."""

    def __init__(self) -> None:
        self._scheduler = Scheduler(1, lambda line: None)
        use_simulated_time(self._scheduler)
        self._cluster = Cluster(self._scheduler, brokers=1)
        self._process = Process("probe")
        self._wait_point = WaitPoint(self._scheduler, Waker())

    def connections(self) -> MemberConnections:
        return SimulatedConnections(self._cluster, self._process, KafkaConsumer.DEFAULT_CONFIG)

    def admin(self) -> Admin:
        return SimulatedAdmin(self._cluster, self._process)

    def consumer(self, *, committed: bool) -> Consumer:
        return SimulatedConsumer(
            self._cluster, self._process, self._wait_point, read_committed=committed
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
        """A unique name; here, one cluster is used only once."""
        return what

    def new_group(self, name: str) -> str:
        """Reset the cluster's only group."""
        self._cluster.group = GroupCoordinator(self._scheduler, lambda: True)
        return name


class SimulatedTransaction:
    """A transactional producer that writes directly to the logs of the simulated cluster."""

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
    """A real broker as the target of requests.

    Args:
        bootstrap: the broker's address.
        undo: closes the clients.
    """

    def __init__(self, bootstrap: str, undo: ExitStack) -> None:
        self._config = StreamsConfig(application_id="probe", bootstrap_servers=bootstrap)
        self._undo = undo

    def connections(self) -> MemberConnections:
        settings = kafka_python_settings(self._config, client_id="probe")
        settings.pop("group_id")
        connections = open_connections(
            settings, group_id="probe", client_id="probe", stopped=lambda: False
        )
        self._undo.callback(connections.close, 5_000)
        return connections

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
        """A unique name."""
        return f"{what}-{uuid.uuid4().hex[:8]}"

    def new_group(self, name: str) -> str:
        """A unique group id."""
        return self.name(name)


class RealTransaction:
    """A transactional producer on a real broker."""

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


def probe(target: Simulated | Real) -> dict[str, Answers]:
    """Send every request and return the answers."""
    answers: dict[str, Answers] = {}
    admin = target.admin()
    topic = target.name("probe")
    admin.create_topics([(topic, 1, {})])
    for name, (requests, members) in _GROUPS.items():
        group = target.new_group(name.replace(" ", "-"))
        probers = [Prober(target.connections(), group, topic) for _ in range(members)]
        answers[name] = requests(*probers)
    group, name = target.new_group("offsets"), target.name("offsets")
    answers["offsets in transactions"] = offsets_in_transactions(
        Prober(target.connections(), group, topic),
        Prober(target.connections(), group, topic),
        TransactionalOffsets(lambda: target.transactional(name), group, TopicPartition(topic, 0)),
    )
    answers["unknown topics"] = unknown_topics(admin, target.consumer(committed=False))
    place = TopicPartition(target.name("deleted"), 0)
    admin.create_topics([(place.topic, 1, {})])
    answers["deleted records"] = deleted_records(
        place, admin, lambda: target.consumer(committed=False), target.producer()
    )
    place = TopicPartition(target.name("transactions"), 0)
    admin.create_topics([(place.topic, 1, {})])
    answers["transactions"] = transactions(
        place,
        admin,
        target.consumer(committed=True),
        target.consumer(committed=False),
        target.transaction("probe"),
    )
    return answers


@contextmanager
def real(bootstrap: str) -> Iterator[Real]:
    """Connect to a real broker until the context ends."""
    with ExitStack() as undo:
        yield Real(bootstrap, undo)


def recorded() -> dict[str, Answers]:
    """The recorded answers of a real broker."""
    recording: dict[str, Answers] = json.loads(ANSWERS.read_text())
    return recording


def main() -> int:
    """Record the answers of a real broker."""
    from millstream.embedded.embedded_kafka import EmbeddedKafka

    with EmbeddedKafka() as broker, real(broker.bootstrap_servers) as target:
        ANSWERS.write_text(json.dumps(probe(target), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
