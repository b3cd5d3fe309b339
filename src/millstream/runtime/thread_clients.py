"""The Kafka clients of one stream thread."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from millstream.clock import Clock, Waker
from millstream.config.client_settings import Role
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.clients.group_metadata import verify_format
from millstream.kafka.clients.producer_clients import BatchLimits
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.membership.group_member import GroupMember
from millstream.kafka.membership.member_assignor import MemberAssignor
from millstream.kafka.protocols import Admin, Consumer, Member, Producer, TransactionalProducer
from millstream.kafka.settings.librdkafka_settings import (
    client_setting,
    kafka_python_settings,
    librdkafka_settings,
)
from millstream.kafka.speedups import describe_speedups, is_missing
from millstream.runtime.client_process import ThreadIdentity
from millstream.runtime.task.error_handling.production_errors import custom_handler

_log = logging.getLogger(__name__)

_DEFAULT_SESSION_MS = 45_000


class KafkaClients(Protocol):
    """The Kafka clients of one stream thread, for a real or a simulated cluster."""

    @property
    def admin(self) -> Admin: ...
    @property
    def assignor_admin(self) -> Admin:
        """The admin client for the assignor, which runs on the member's thread."""

    @property
    def producer(self) -> Producer: ...
    @property
    def transactions(self) -> TransactionalProducer | None:
        """The transactional producer under exactly-once; else None."""

    @property
    def consumer(self) -> Consumer: ...
    @property
    def restore_consumer(self) -> Consumer: ...
    @property
    def global_consumer(self) -> Consumer | None:
        """Reads global topics; None without global stores."""

    @property
    def session_timeout_ms(self) -> int:
        """The time without heartbeats after which the group removes a member."""

    @property
    def static(self) -> bool:
        """Whether the member has a `group.instance.id`.

        This id identifies the member after a restart.
        """

    def member(
        self,
        group_id: str,
        topics: Sequence[str] | None,
        pattern: re.Pattern[str] | None,
        assignor: MemberAssignor,
    ) -> Member:
        """Return the group member, which has not joined the group yet."""

    @property
    def other_closers(self) -> Collection[Callable[[], None]]:
        """The functions that close the clients other than the consumer and the producer."""

    def close(self) -> None:
        """Close all clients of a thread that could not be built."""


#: Opens the clients of a thread. Arguments: the settings, the thread's identity, a clock, whether
#: there are global stores, and a waker that interrupts waits for records and events.
OpenClients = Callable[[StreamsConfig, ThreadIdentity, Clock, bool, Waker], KafkaClients]


class ThreadClients:
    """The Kafka clients of one stream thread. They connect on first use.

    The thread's name is the prefix of the client ids. The waker interrupts waits for records and
    member events; the group member uses the waker when an event occurs.

    Raises:
        ConfigError: a client rejects its settings, or `speedups` is True and the extension is
            missing.
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
        # The assignor runs on the member's thread and has its own admin client.
        self.assignor_admin = self._admin(config, f"{name}-assignor", clock)
        self.transactions = self._transactions(config, identity) if config.exactly_once else None
        self.producer = self.transactions or RecordProducer(
            librdkafka_settings(config, "producer", f"{name}-producer"),
            **self._producer_arguments(config),
            # Follows Kafka Streams' DefaultProductionExceptionHandler.
            reprocess_on_timeout=custom_handler(config) is None,
        )
        self._opened.append(self.producer.close)
        _log.log(
            logging.WARNING if is_missing(config.speedups) else logging.INFO,
            "%s: records are read and written %s",
            name,
            describe_speedups(config.speedups),
        )
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
            **self._producer_arguments(config),
        )

    def _producer_arguments(self, config: StreamsConfig) -> dict[str, Any]:
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
        return int(self._member_settings.get("session_timeout_ms", _DEFAULT_SESSION_MS))

    @property
    def static(self) -> bool:
        return "group_instance_id" in self._member_settings

    def member(
        self,
        group_id: str,
        topics: Sequence[str] | None,
        pattern: re.Pattern[str] | None,
        assignor: MemberAssignor,
    ) -> GroupMember:
        return GroupMember(
            self._member_settings,
            group_id=group_id,
            topics=topics,
            pattern=pattern,
            assignor=assignor,
            client_id=f"{self._name}-consumer",
            clock=self._clock,
            waker=self._waker,
            # Ensures that no transaction is open while commits are impossible.
            announces_joins=self._exactly_once,
        )

    @property
    def other_closers(self) -> list[Callable[[], None]]:
        clients = (self.restore_consumer, self.global_consumer, self.admin, self.assignor_admin)
        return [client.close for client in clients if client is not None]

    def close(self) -> None:
        for close in self._opened:
            close()
