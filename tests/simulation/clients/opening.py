"""All clients of one stream thread on the simulated cluster (`thread_clients.Clients`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from millstream.clock import Clock, Waker
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.membership.member_assignor import MemberAssignor
from millstream.kafka.settings.librdkafka_settings import kafka_python_settings, librdkafka_settings
from millstream.runtime.client_process import ThreadIdentity
from simulation.broker.cluster import Cluster
from simulation.clients.admin import SimulatedAdmin
from simulation.clients.consumer import SimulatedConsumer
from simulation.clients.member import SimulatedMember
from simulation.clients.producer import SimulatedProducer
from simulation.clients.requests import WaitPoint
from simulation.clients.transactions import SimulatedTransactions
from simulation.scheduler import Process


class SimulatedClients:
    """The clients of one thread, with the settings of the real ones.

    Args:
        cluster: the cluster.
        process: the thread's process.
        config: the application's settings.
        identity: the thread's identity.
        waker: ends its waits.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: Process,
        config: StreamsConfig,
        identity: ThreadIdentity,
        waker: Waker,
    ) -> None:
        self._waker = waker
        #: The wait point of the thread.
        self.wait_point = WaitPoint(cluster.scheduler, waker)
        self._cluster = cluster
        self._process = process
        name = self._name = identity.name
        self._exactly_once = config.exactly_once
        self._settings = kafka_python_settings(
            config, client_id=f"{name}-consumer", thread_index=identity.index
        )
        producer = librdkafka_settings(config, "producer", f"{name}-producer")
        self.admin = SimulatedAdmin(cluster, process)
        self.assignor_admin = SimulatedAdmin(cluster, process)
        self.transactions = (
            SimulatedTransactions(
                cluster,
                process,
                producer,
                config.task_timeout_ms,
                identity.transactional_id(config.application_id),
            )
            if config.exactly_once
            else None
        )
        self.producer = self.transactions or SimulatedProducer(
            cluster, process, producer, config.task_timeout_ms
        )
        committed = self._settings["isolation_level"] == "read_committed"
        self.consumer = SimulatedConsumer(
            cluster, process, self.wait_point, read_committed=committed
        )
        self.restore_consumer = SimulatedConsumer(
            cluster, process, self.wait_point, read_committed=committed
        )
        self.global_consumer = None
        #: The thread's group member, once created.
        self.joined: SimulatedMember | None = None

    @property
    def session_timeout_ms(self) -> int:
        return int(self._settings.get("session_timeout_ms", 45_000))

    @property
    def static(self) -> bool:
        return "group_instance_id" in self._settings

    def member(
        self,
        group_id: str,
        topics: Sequence[str] | None,
        pattern: re.Pattern[str] | None,
        assignor: MemberAssignor,
    ) -> SimulatedMember:
        self.joined = SimulatedMember(
            self._cluster,
            self._process,
            self.wait_point,
            self._settings,
            group_id=group_id,
            topics=topics,
            pattern=pattern,
            assignor=assignor,
            client_id=f"{self._name}-consumer",
            waker=self._waker,
            announces_joins=self._exactly_once,
        )
        return self.joined

    @property
    def other_closers(self) -> Collection[Callable[[], None]]:
        return [self.restore_consumer.close, self.admin.close, self.assignor_admin.close]

    def close(self) -> None:
        return None


def opening(
    cluster: Cluster, process: Process, opened: Callable[[SimulatedClients], None]
) -> Callable[[StreamsConfig, ThreadIdentity, Clock, bool, Waker], SimulatedClients]:
    """Create the function with which `build_thread` opens clients.

    Args:
        cluster: the cluster.
        process: the thread's process.
        opened: called with the clients.
    """

    def open_clients(
        config: StreamsConfig,
        identity: ThreadIdentity,
        clock: Clock,
        reads_global_topics: bool,
        waker: Waker,
    ) -> SimulatedClients:
        assert not reads_global_topics, "global topics are not simulated"
        clients = SimulatedClients(cluster, process, config, identity, waker)
        opened(clients)
        return clients

    return open_clients
