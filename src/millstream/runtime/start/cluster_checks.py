"""Checks the cluster before an application starts.

The group's leader would find most of these problems as well, but only once Spark and all threads
are running: half a minute later, and in the log of another machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from millstream.assignment.internal_topics import (
    changelog_counts,
    missing_source_topics,
    repartition_counts,
    tasks_of,
    topics_to_create,
)
from millstream.clock import Clock, Deadline
from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    AccessDeniedError,
    BrokerUnavailableError,
    MissingSourceTopicError,
    StreamsError,
    UnknownTopicError,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.cluster.group_admin import PermissionsAdmin
from millstream.kafka.cluster.listener_probe import ProtocolProbe, protocol_hint
from millstream.kafka.cluster.retries import LogInterval
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.kafka.user_permissions import Permission, permission_advice, user_of
from millstream.record import TopicPartition
from millstream.runtime.start.topology_topics import reset_policy, topology_topics
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)

#: The minimum timeout of the first connection, even without retries.
_MIN_CONNECT_TIMEOUT_MS = 5_000
#: The wait before the first warning about an unavailable broker.
_FIRST_WARNING_MS = 2_000
#: The advice that is appended to the first warning.
_ADVICE = ". Is bootstrap_servers right? `millstream broker` starts a broker on this machine"
#: How often brokers are probed for another security protocol.
_PROBE_INTERVAL_MS = 2_000
#: How long to wait for a missing topic, which may just have been created.
_NEW_TOPIC_TIMEOUT_MS = 2_000
_RETRY_INTERVAL_MS = 200
_REQUEST_TIMEOUT_MS = 2_000


class ClusterChecks:
    """Checks that the cluster meets an application's requirements.

    While the checks wait for a broker, they call `is_cancelled` about twice a second.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        clock: Clock,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._config = config
        self._clock = clock
        self._is_cancelled = is_cancelled
        self._topics = topology_topics(topology, config)
        self._global_topics = {
            topic for store in topology.global_stores.values() for topic in store.source.topics
        }
        self._table_topics = topology._compacted_topics()
        self._settings = _quiet_settings(config)
        self._changelogs = {
            name for group in self._topics.groups for name in group.changelog_topics
        }

    def run(self) -> None:
        """Wait for a broker, then check the topics. Ends early if canceled.

        Logs a warning for tables without a compacted topic.

        Raises:
            BrokerUnavailableError: no broker responded within `task.timeout.ms`, or the brokers use
                another security protocol.
            AccessDeniedError: a broker rejects the login, its certificate is not trusted, or the
                user lacks permissions.
            MissingSourceTopicError: source topics do not exist; the error also lists missing sink
                topics.
            UnknownTopicError: sink topics do not exist.
            CopartitionError: joined topics have different partition counts.
            TopologyError: an internal topic has a wrong partition count.
        """
        admin = PermissionsAdmin(self._settings)
        try:
            protocol = self._settings.get("security.protocol", "PLAINTEXT")
            waiting = _BrokerWait(self._config, protocol, self._clock, self._is_cancelled)
            admin.check_reachable(waiting.timeout_ms, waiting.continue_waiting)
            if protocol != "PLAINTEXT":
                external = self._topics.external_source_topics | self._global_topics
                _check_permissions(
                    admin,
                    self._config.application_id,
                    user_of(self._settings),
                    read=external,
                    written=self._written,
                    internal=(self._topics.repartition_topics.keys() | self._changelogs) - external,
                )
            counts = self._counts(admin, waiting)
            if not self._is_cancelled():
                self._check_existence(counts)
                self._check_counts(counts)
                self._check_compaction(admin, self._table_topics & counts.keys())
        except _CheckCancelledError:
            logger.debug("the cluster checks were canceled")
        finally:
            admin.close()

    @property
    def _written(self) -> set[str]:
        """The external topics with fixed names that the application writes to."""
        written = {topic for group in self._topics.groups for topic in group.sink_topics}
        if self._config.errors_dead_letter_queue_topic_name is not None:
            written.add(self._config.errors_dead_letter_queue_topic_name)
        return written - self._topics.repartition_topics.keys()

    def _counts(self, admin: ClusterAdmin, waiting: _BrokerWait) -> dict[str, int]:
        """Return the partition counts of all existing topics."""
        external = self._topics.external_source_topics | self._global_topics | self._written
        requested = external | self._topics.repartition_topics.keys() | self._changelogs
        appear = Deadline(self._clock, _NEW_TOPIC_TIMEOUT_MS)
        while True:
            try:
                counts = admin.partition_counts(requested, _REQUEST_TIMEOUT_MS)
            except BrokerUnavailableError as error:
                if waiting.deadline.passed:
                    raise
                waiting.continue_waiting(error.message.rstrip("."))
                continue
            if external <= counts.keys() or appear.passed or self._is_cancelled():
                return counts
            self._clock.sleep_ms(_RETRY_INTERVAL_MS)

    def _check_existence(self, counts: Mapping[str, int]) -> None:
        missing = missing_source_topics(self._topics, counts)
        missing += sorted(self._global_topics - counts.keys())
        missing_sinks = sorted(self._written - counts.keys())
        advice = (
            "which the cluster does not have. Create the topics before the application starts "
            "(`millstream topics PROGRAM --create` does that). Perhaps a name is misspelled, or "
            f"this is another cluster ({self._config.bootstrap_servers})."
        )
        writes = f"writes to {_listed(missing_sinks)}"
        if missing:
            also = f" and {writes}" if missing_sinks else ""
            raise MissingSourceTopicError(
                f"The application reads {_listed(missing)}{also}, {advice}", topic=missing[0]
            )
        if missing_sinks:
            raise UnknownTopicError(f"The application {writes}, {advice}", topic=missing_sinks[0])

    def _check_counts(self, counts: Mapping[str, int]) -> None:
        topics = self._topics
        if any(group.source_patterns for group in topics.groups):
            # The matches of a pattern are only known after the members have subscribed, and may
            # change.
            return
        resolved = repartition_counts(topics, counts)
        tasks = tasks_of(topics.groups, {**counts, **resolved})
        specs = topics.repartition_topics
        expected = {name: (count, specs[name].config) for name, count in resolved.items()}
        topics_to_create(expected | changelog_counts(topics.groups, tasks), counts)

    def _check_compaction(self, admin: ClusterAdmin, topics: Collection[str]) -> None:
        """Warn about tables whose topics delete old rows."""
        try:
            settings = admin.topic_configs(topics, _REQUEST_TIMEOUT_MS)
        except StreamsError as error:
            # Running the application does not require permission to read topic settings.
            logger.debug("cannot check whether the topics of tables are compacted: %s", error)
            return
        deleted = sorted(
            topic for topic, each in settings.items() if each.get("cleanup.policy") == "delete"
        )
        if deleted:
            logger.warning(
                "%s reads %s as %s, but cleanup.policy=delete makes Kafka delete old records: rows "
                "that are not updated within the retention time are missing on instances that "
                "start later or lose their state. Set cleanup.policy=compact, for example "
                "with kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config "
                "cleanup.policy=compact",
                self._config.application_id,
                _listed(deleted),
                "a table" if len(deleted) == 1 else "tables",
                self._config.bootstrap_servers,
                deleted[0],
            )


def describe_start_offsets(
    topology: Topology, config: StreamsConfig, tasks: Collection[str]
) -> list[str]:
    """Describe the committed offsets of the tasks' external topics: `in-0 from 120`.

    Partitions without a committed offset show the offset reset policy. The list is empty if the
    cluster does not respond.
    """
    topics = topology_topics(topology, config)
    policy = reset_policy(topology, config)
    read = sorted(
        TopicPartition(topic, int(number))
        for group in topics.groups
        for subtopology, _, number in (task.partition("_") for task in tasks)
        if int(subtopology) == group.subtopology_id
        for topic in group.source_topics
        if topic not in topics.repartition_topics
    )
    admin = ClusterAdmin(_quiet_settings(config))
    try:
        counts = admin.partition_counts({topic for topic, _ in read}, _REQUEST_TIMEOUT_MS)
        read = [
            partition for partition in read if partition.partition < counts.get(partition.topic, 0)
        ]
        found = admin.committed_offsets(config.application_id, read, _REQUEST_TIMEOUT_MS)
    except StreamsError as error:
        logger.debug("the committed offsets are unknown: %s", error)
        return []
    finally:
        admin.close()
    return [
        f"{topic}-{number} from {policy(topic).start if at is None else at}"
        for (topic, number), at in sorted(found.items())
    ]


def _quiet_settings(config: StreamsConfig) -> dict[str, Any]:
    """Return the admin client's settings, without its own log of connection errors.

    The checks report these errors.
    """
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-admin")
    if not logger.isEnabledFor(logging.DEBUG):
        settings["log_level"] = 0
    return settings


class _CheckCancelledError(Exception):
    """The start was canceled while waiting for the cluster."""


class _BrokerWait:
    """Waits for a broker and logs warnings; ends early if waiting cannot help."""

    def __init__(
        self, config: StreamsConfig, protocol: str, clock: Clock, is_cancelled: Callable[[], bool]
    ) -> None:
        self.timeout_ms = max(_MIN_CONNECT_TIMEOUT_MS, config.task_timeout_ms)
        self._config = config
        self._protocol = protocol
        self._clock = clock
        self._is_cancelled = is_cancelled
        self.deadline = Deadline(clock, self.timeout_ms)
        self._began_ms = clock.monotonic_ms()
        self._warnings = LogInterval(clock, first_ms=_FIRST_WARNING_MS)
        self._has_advised = False
        self._servers = config.bootstrap_servers.split(",")
        self._probe = ProtocolProbe(
            self._servers, protocol, is_cancelled, clock, _PROBE_INTERVAL_MS
        )

    def continue_waiting(self, reason: str) -> None:
        """Log a warning if one is due, or raise an error that ends the wait.

        Raises:
            BrokerUnavailableError: the brokers use another security protocol.
            _CheckCancelledError: the start was canceled.
        """
        if self._is_cancelled():
            raise _CheckCancelledError
        if self._warnings.is_due:
            logger.warning(
                "%s: waiting for a broker at %s for %d s, at most %d s: %s%s",
                self._config.application_id,
                self._config.bootstrap_servers,
                (self._clock.monotonic_ms() - self._began_ms) // 1_000,
                self.timeout_ms // 1_000,
                reason,
                "" if self._has_advised else _ADVICE,
            )
            self._has_advised = True
        if self._probe.is_mismatch_confirmed():
            raise BrokerUnavailableError(
                f"No Kafka broker answered at {', '.join(self._servers)}: {reason}. Check "
                "bootstrap_servers, and that security_protocol matches the brokers."
                + protocol_hint(self._servers, self._protocol)
            )


def _listed(topics: list[str]) -> str:
    return ", ".join(map(repr, topics))


def _check_permissions(
    admin: PermissionsAdmin,
    group: str,
    user: str,
    *,
    read: Collection[str],
    written: Collection[str],
    internal: Collection[str],
) -> None:
    """Compare the permissions of a user with those that an application needs.

    Brokers only return permissions for existing topics. Permissions for topics that are yet to be
    created, for transactional ids, and for creating topics are not checked here; the threads report
    them. `user` is empty if only the broker can determine it. Raises AccessDeniedError, which lists
    all missing permissions.
    """
    needed: dict[str, set[str]] = {}
    for operation, topics in (("Read", read), ("Write", written)):
        for topic in (*sorted(topics), *sorted(internal)):
            needed.setdefault(topic, set()).add(operation)
    missing: list[Permission] = []
    try:
        allowed = admin.allowed_on_topics(needed, _REQUEST_TIMEOUT_MS)
        missing += (
            Permission(operation, "topic", topic)
            for topic, operations in needed.items()
            for operation in sorted(operations)
            if topic in allowed and operation.upper() not in allowed[topic]
        )
        on_group = admin.allowed_on_group(group, _REQUEST_TIMEOUT_MS)
        if on_group is not None and "READ" not in on_group:
            missing.append(Permission("Read", "group", group))
    except BrokerUnavailableError as error:
        # Not fatal: the requests that require a response are retried later.
        logger.debug("the permissions of the user are unknown: %s", error)
    if missing:
        names = (right.name for right in missing if right.kind == "topic")
        raise AccessDeniedError(permission_advice(missing, user), topic=next(names, None))
