"""Which driver of an application runs a stage, and how far the stage is.

Drivers are members of a consumer group that subscribes to the stage's input topic and reads
nothing. Whoever owns partition 0 runs the query. The group's offsets say before which records all
is done; a query that has no checkpoint begins there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.errors import AccessDeniedError
from millstream.kafka.cluster.committed_offsets import committed_positions
from millstream.kafka.librdkafka_errors import client_error
from millstream.kafka.rights import Needs, user_of
from millstream.kafka.settings.clients import (
    client_setting,
    create_client,
    librdkafka_settings,
)
from millstream.record import TopicPartition
from millstream.structured.plan import StagePlan

logger = logging.getLogger(__name__)

_DECIDES: Final = 0
#: A driver that dies is noticed after this, unless `session.timeout.ms` is given. No user's code
#: holds up who is in this group.
_SESSION_MS: Final = 10_000
_ANSWER_MS: Final = 10_000


class Election:
    """One driver's part in it. Used by one Python thread.

    Args:
        plan: of the stage.
        config: settings of the application.
        on_lost: called when another driver is to run the stage; when it returns, this one does not
            run it any more.
    """

    def __init__(self, plan: StagePlan, config: StreamsConfig, on_lost: Callable[[], None]) -> None:
        client_id = f"{plan.query_name}-dataframe"
        self._plan = plan
        self._on_lost = on_lost
        self._admin_settings = librdkafka_settings(config, "admin", client_id)
        self._needs = Needs(user_of(self._admin_settings), "Read", plan.group)
        self._is_owner = False
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

    @property
    def is_owner(self) -> bool:
        """Whether this driver is to run the stage."""
        return self._is_owner

    def poll(self, timeout_s: float) -> None:
        """Follow the group.

        Raises:
            AccessDeniedError: the user may not be in the group.
        """
        message = self._consumer.poll(timeout_s)
        error = None if message is None else message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return
        told = client_error(error, "Choosing who runs a DataFrame function", needs=self._needs)
        if isinstance(told, AccessDeniedError):
            raise told
        logger.info("%s: %s", self._plan.name, told)

    def finished(self, partitions: int) -> tuple[dict[int, int], str | None]:
        """Before which offset all is done, by partition, and the query that has noted it.

        Raises:
            BrokerUnavailableError: nobody tells.
        """
        places = [TopicPartition(self._plan.input_topic, number) for number in range(partitions)]
        found = committed_positions(
            self._admin_settings, self._plan.group, places, _ANSWER_MS, SystemClock()
        )
        known = {place.partition: told for place, told in found.items() if told is not None}
        noted_by = next((query for _, query in known.values()), None)
        # The connector wants all partitions or none; -2 is the earliest there.
        offsets = {
            number: known[number][0] if number in known else -2 for number in range(partitions)
        }
        return (offsets if known else {}), noted_by

    def note(self, finished: Mapping[TopicPartition, int], query: str) -> bool:
        """Say before which offsets all is done; whether the group took it."""
        positions = [
            ClientPartition(*place, offset, metadata=query) for place, offset in finished.items()
        ]
        try:
            self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException as error:
            # Another driver may be about to take over; it begins at what was noted before.
            logger.info("%s: not noted how far it is: %s", self._plan.name, error)
            return False
        return True

    def close(self) -> None:
        """Leave the group, so that another driver goes on at once."""
        self._consumer.close()
        self._is_owner = False

    def _assigned(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if any(partition.partition == _DECIDES for partition in partitions):
            self._is_owner = True

    def _revoked(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if any(partition.partition == _DECIDES for partition in partitions) and self._is_owner:
            self._is_owner = False
            try:
                self._on_lost()
            except Exception as error:
                # The partition is given up all the same; the owner of the query stops it later.
                logger.warning("%s: %s", self._plan.name, error)
        consumer.incremental_unassign(partitions)


def _settings(plan: StagePlan, config: StreamsConfig, client_id: str) -> dict[str, Any]:
    settings = librdkafka_settings(config, "main_consumer", client_id)
    settings |= {
        "group.id": plan.group,
        # Who runs the query keeps it when another driver comes.
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.partition.eof": False,
        "auto.offset.reset": "latest",
    }
    for name in ("heartbeat.interval.ms", "max.poll.interval.ms"):
        settings[name] = int(client_setting(config, "main_consumer", name))
    given = config.client_settings("main_consumer").get("session.timeout.ms", _SESSION_MS)
    settings["session.timeout.ms"] = int(given)
    return settings
