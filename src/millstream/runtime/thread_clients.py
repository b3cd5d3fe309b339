"""The Kafka clients of one stream thread."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.config_clients import Role
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.data.batch_limits import BatchLimits
from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.data.group_metadata import verify_format
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.kafka.member.group_member import GroupMember
from millstream.kafka.member.member_assignor import MemberAssignor
from millstream.kafka.protocols import Admin, Consumer, Member, Producer, TransactionalProducer
from millstream.kafka.settings.clients import (
    client_setting,
    kafka_python_settings,
    librdkafka_settings,
)
from millstream.kafka.speedups import told_speedups
from millstream.runtime.task.production import own_handler
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.waker import Waker

_log = logging.getLogger(__name__)

_DEFAULT_SESSION_MS = 45_000


class Clients(Protocol):
    """The clients of one stream thread, on whatever cluster.

    Attributes:
        admin: asks and changes the cluster, on the thread itself.
        assignor_admin: the same for the assignor, which works on the member's thread.
        producer: writes outputs and changelogs.
        transactions: the same, under exactly-once; else None.
        consumer: reads the inputs of tasks.
        restore_consumer: reads changelogs.
        global_consumer: reads global topics; None if there are none.
        session_timeout_ms: after how long a silent member is thought to be dead.
        static: whether the member has a `group.instance.id`.
    """

    @property
    def admin(self) -> Admin: ...
    @property
    def assignor_admin(self) -> Admin: ...
    @property
    def producer(self) -> Producer: ...
    @property
    def transactions(self) -> TransactionalProducer | None: ...
    @property
    def consumer(self) -> Consumer: ...
    @property
    def restore_consumer(self) -> Consumer: ...
    @property
    def global_consumer(self) -> Consumer | None: ...
    @property
    def session_timeout_ms(self) -> int: ...
    @property
    def static(self) -> bool: ...

    def member(
        self,
        group_id: str,
        topics: Sequence[str] | None,
        pattern: re.Pattern[str] | None,
        assignor: MemberAssignor,
    ) -> Member:
        """The thread's place in the group, which it has not joined yet."""
        ...

    @property
    def closers_beside_tasks(self) -> Collection[Callable[[], None]]:
        """What closes the clients that neither tasks nor commits need any more."""
        ...

    def close(self) -> None:
        """Close what was opened, when the thread could not be put together."""
        ...


#: Opens the clients of a thread: of its settings, which thread it is, a clock, whether it has a use
#: for a consumer of global topics, and what ends its waits for records and events.
OpenClients = Callable[[StreamsConfig, ThreadIdentity, Clock, bool, Waker], Clients]


class ThreadClients:
    """The Kafka clients of one thread. They connect when they are first used.

    Args:
        config: the application's settings.
        identity: which thread it is; the names of its clients begin with its name.
        clock: where deadlines are measured.
        reads_global_topics: whether the topology has global stores.
        waker: ends waits for records and for the member's events, which wake it, too.

    Raises:
        ConfigError: a client refuses its settings, or `speedups` is True and they are not there.
    """

    def __init__(
        self,
        config: StreamsConfig,
        identity: ThreadIdentity,
        clock: Clock,
        reads_global_topics: bool,
        waker: Waker,
    ) -> None:
        name = self._name = identity.name
        self._waker = waker
        self._clock = clock
        self._opened: list[Callable[[], None]] = []
        self._exactly_once = config.exactly_once
        self._member_settings = kafka_python_settings(
            config, client_id=f"{name}-consumer", thread_index=identity.index
        )
        self.admin = self._admin(config, f"{name}-admin", clock)
        # The assignor works on the member's thread: it has an admin client of its own.
        self.assignor_admin = self._admin(config, f"{name}-assignor", clock)
        self.transactions = self._transactions(config, identity) if config.exactly_once else None
        self.producer = self.transactions or RecordProducer(
            librdkafka_settings(config, "producer", f"{name}-producer"),
            **self._producing(config),
            # Follows Kafka Streams: what DefaultProductionExceptionHandler answers.
            begins_anew=own_handler(config) is None,
        )
        self._opened.append(self.producer.close)
        _log.info("%s: records are read and written %s", name, told_speedups(config.speedups))
        self.consumer = self._consumer(config, "main_consumer", f"{name}-consumer")
        self.restore_consumer = self._consumer(
            config, "restore_consumer", f"{name}-restore-consumer"
        )
        self.global_consumer = (
            self._consumer(config, "global_consumer", f"{name}-global-consumer")
            if reads_global_topics
            else None
        )

    def _admin(self, config: StreamsConfig, client_id: str, clock: Clock) -> ClusterAdmin:
        admin = ClusterAdmin(
            librdkafka_settings(config, "admin", client_id),
            replication_factor=config.replication_factor,
            clock=clock,
        )
        self._opened.append(admin.close)
        return admin

    def _transactions(
        self, config: StreamsConfig, identity: ThreadIdentity
    ) -> TransactionalRecordProducer:
        verify_format()
        return TransactionalRecordProducer(
            librdkafka_settings(config, "producer", f"{self._name}-producer"),
            identity.transactional_id(config.application_id),
            **self._producing(config),
        )

    def _producing(self, config: StreamsConfig) -> dict[str, Any]:
        return {
            "clock": self._clock,
            "limits": BatchLimits(self.admin, self._clock, config.task_timeout_ms),
            "max_block_ms": int(client_setting(config, "producer", "max.block.ms")),
            "task_timeout_ms": config.task_timeout_ms,
            "speedups": config.speedups,
        }

    def _consumer(self, config: StreamsConfig, role: Role, client_id: str) -> RecordConsumer:
        settings = librdkafka_settings(config, role, client_id)
        consumer = RecordConsumer(settings, self._clock, self._waker, speedups=config.speedups)
        self._opened.append(consumer.close)
        return consumer

    @property
    def session_timeout_ms(self) -> int:
        """After how long a silent member is thought to be dead."""
        return int(self._member_settings.get("session_timeout_ms", _DEFAULT_SESSION_MS))

    @property
    def static(self) -> bool:
        """Whether the member has a `group.instance.id`, by which it is known after a restart."""
        return "group_instance_id" in self._member_settings

    def member(
        self,
        group_id: str,
        topics: Sequence[str] | None,
        pattern: re.Pattern[str] | None,
        assignor: MemberAssignor,
    ) -> GroupMember:
        """The thread's place in the group, which it has not joined yet."""
        return GroupMember(
            self._member_settings,
            group_id=group_id,
            topics=topics,
            pattern=pattern,
            assignor=assignor,
            client_id=f"{self._name}-consumer",
            clock=self._clock,
            waker=self._waker,
            # So that no transaction is open while nothing can be committed.
            announces_joins=self._exactly_once,
        )

    @property
    def closers_beside_tasks(self) -> list[Callable[[], None]]:
        """What closes the clients that neither tasks nor commits need any more."""
        clients = (self.restore_consumer, self.global_consumer, self.admin, self.assignor_admin)
        return [client.close for client in clients if client is not None]

    def close(self) -> None:
        """Close what was opened, when the thread could not be put together."""
        for close in self._opened:
            close()
