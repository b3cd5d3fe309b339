"""Elects the driver that runs a stage, and stores the stage's offsets.

The drivers of an application are members of a consumer group that subscribes to the stage's input
topic but reads no records. The owner of partition 0 runs the query. The group's committed offsets
are the positions up to which the stage has processed its input. A query without a checkpoint starts
at these offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.stage_plan import StagePlan
from millstream.errors import AccessDeniedError
from millstream.kafka.cluster.committed_offsets import committed_positions
from millstream.kafka.librdkafka_errors import client_error
from millstream.kafka.settings.librdkafka_settings import (
    client_setting,
    create_client,
    librdkafka_settings,
)
from millstream.kafka.user_permissions import AccessContext, user_of
from millstream.record import TopicPartition

logger = logging.getLogger(__name__)

_ELECTION_PARTITION: Final = 0
#: The default of `session.timeout.ms`. It can be short, because user code does not block this
#: group's members.
_SESSION_TIMEOUT_MS: Final = 10_000
_REQUEST_TIMEOUT_MS: Final = 10_000


class StageElection:
    """One driver's membership in the election of a stage. Not thread-safe.

    `on_lost` is called when another driver takes over the stage, and must stop the query.
    """

    def __init__(self, plan: StagePlan, config: StreamsConfig, on_lost: Callable[[], None]) -> None:
        client_id = f"{plan.query_name}-dataframe"
        self._plan = plan
        self._on_lost = on_lost
        self._admin_settings = librdkafka_settings(config, "admin", client_id)
        self._access = AccessContext(user_of(self._admin_settings), "Read", plan.group)
        #: Whether this driver runs the stage.
        self.is_owner = False
        self._consumer = create_client(Consumer, _settings(plan, config, client_id))
        try:
            self._consumer.subscribe(
                [plan.input_topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
        except BaseException:
            self._consumer.close()
            raise

    def poll(self, timeout_s: float) -> None:
        """Poll the consumer.

        Raises an `AccessDeniedError` if the user may not join the group.
        """
        message = self._consumer.poll(timeout_s)
        error = None if message is None else message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        failure = client_error(
            error, "Electing the driver of a DataFrame function", access=self._access
        )
        if isinstance(failure, AccessDeniedError):
            raise failure
        logger.info("%s: %s", self._plan.name, failure)

    def committed_offsets(self, partitions: int) -> tuple[dict[int, int], str | None]:
        """Return the offsets by partition, and the ID of the query that committed them.

        Raises a `BrokerUnavailableError` if no broker responds.
        """
        topic_partitions = [
            TopicPartition(self._plan.input_topic, number) for number in range(partitions)
        ]
        found = committed_positions(
            self._admin_settings,
            self._plan.group,
            topic_partitions,
            _REQUEST_TIMEOUT_MS,
            SystemClock(),
        )
        committed = {tp.partition: entry for tp, entry in found.items() if entry is not None}
        committed_by = next((query for _, query in committed.values()), None)
        # The connector requires all partitions or none; -2 means earliest.
        offsets = {
            number: committed[number][0] if number in committed else -2
            for number in range(partitions)
        }
        return (offsets if committed else {}), committed_by

    def commit(self, finished: Mapping[TopicPartition, int], query: str) -> bool:
        """Commit the offsets up to which the input is processed.

        Returns whether the commit succeeded.
        """
        positions = [
            ClientPartition(*tp, offset, metadata=query) for tp, offset in finished.items()
        ]
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            # Another driver may be taking over. It starts at the latest committed offsets.
            logger.info("%s: its progress was not committed: %s", self._plan.name, error)
            return False
        return True

    def close(self) -> None:
        """Leave the group, so that another driver takes over immediately."""
        self._consumer.close()
        self.is_owner = False

    def _assigned(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if _includes_election(partitions):
            self.is_owner = True

    def _revoked(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if self.is_owner and _includes_election(partitions):
            self.is_owner = False
            try:
                self._on_lost()
            except Exception as error:
                # Revoke the partition anyway; the supervisor stops the query later.
                logger.warning("%s: %s", self._plan.name, error)
        consumer.incremental_unassign(partitions)


def _includes_election(partitions: list[ClientPartition]) -> bool:
    return any(partition.partition == _ELECTION_PARTITION for partition in partitions)


def _settings(plan: StagePlan, config: StreamsConfig, client_id: str) -> dict[str, Any]:
    settings = librdkafka_settings(config, "main_consumer", client_id)
    settings |= {
        "group.id": plan.group,
        # Sticky, so that the query stays on its driver when another driver joins.
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.partition.eof": False,
        "auto.offset.reset": "latest",
    }
    for name in ("heartbeat.interval.ms", "max.poll.interval.ms"):
        settings[name] = int(client_setting(config, "main_consumer", name))
    given = config.client_settings("main_consumer").get("session.timeout.ms", _SESSION_TIMEOUT_MS)
    settings["session.timeout.ms"] = int(given)
    return settings
