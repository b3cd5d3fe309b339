"""What the cluster says against starting an application, asked before anything is started.

The group's leader would find most of it out as well, once Spark and all threads run: half a minute
later, and on another machine's log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from millstream.assignment.internal_topics import (
    changelog_counts,
    missing_source_topics,
    repartition_counts,
    topics_to_create,
)
from millstream.assignment.partitions import tasks_of
from millstream.clock import Clock, Deadline
from millstream.config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    MissingSourceTopicError,
    StreamsError,
    UnknownTopicError,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.cluster.listener_probe import ProtocolProbe, protocol_hint
from millstream.kafka.cluster.log_interval import LogInterval
from millstream.kafka.cluster.rights_admin import RightsAdmin
from millstream.kafka.rights import user_of
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition
from millstream.runtime.start_rights import StartRights
from millstream.runtime.topology_topics import reset_policy, topology_topics
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)

#: How long the first attempt takes even where nothing is to be tried again.
_FIRST_CONTACT_MS = 5_000
#: After how long the first warning says what start() waits for.
_SAY_AFTER_MS = 2_000
#: Of the first warning.
_ADVICE = ". Is bootstrap_servers right? `millstream broker` starts one on this machine"
#: How often it is asked whether a broker is there that wants another security protocol.
_PROBE_EACH_MS = 2_000
#: How long a topic that nobody has heard of may be one that was created a moment ago.
_TOPICS_APPEAR_MS = 2_000
_ASK_AGAIN_MS = 200
_ANSWER_MS = 2_000


class StartChecks:
    """Asks the cluster what an application needs of it.

    Args:
        topology: what the application computes.
        config: its settings.
        clock: for how long it waits.
        given_up: asked twice a second: whether nobody waits for the answers any more.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        clock: Clock,
        given_up: Callable[[], bool],
    ) -> None:
        self._config = config
        self._clock = clock
        self._given_up = given_up
        self._topics = topology_topics(topology, config)
        self._global_topics = {
            topic for store in topology.global_stores.values() for topic in store.source.topics
        }
        self._table_topics = topology._compacted_topics()
        self._settings = _quiet_settings(config)
        self._changelogs = {
            name for group in self._topics.groups for name in group.changelog_topics
        }
        external = self._topics.external_source_topics | self._global_topics
        self._rights = StartRights(
            config.application_id,
            user_of(self._settings),
            read=external,
            written=self._written,
            internal=(self._topics.repartition_topics.keys() | self._changelogs) - external,
        )

    def run(self) -> None:
        """Wait until a broker answers, then look at the topics. Ends early if it is given up.

        Topics of tables that are not compacted are a warning.

        Raises:
            BrokerUnavailableError: none answered for `task.timeout.ms`, or those that are there
                want another security protocol.
            AccessDeniedError: a broker refuses the login, its certificate is not trusted, or the
                user lacks rights.
            MissingSourceTopicError: topics that are read do not exist; names what is written and
                does not exist as well.
            UnknownTopicError: topics that are written do not exist.
            CopartitionError: topics that are joined have different partition counts.
            TopologyError: an internal topic has a wrong partition count.
        """
        admin = RightsAdmin(self._settings)
        try:
            protocol = self._settings.get("security.protocol", "PLAINTEXT")
            waiting = _Waiting(self._config, protocol, self._clock, self._given_up)
            admin.check_reachable(waiting.timeout_ms, waiting.goes_on)
            if protocol != "PLAINTEXT":
                self._rights.check(admin)
            counts = self._counts(admin, waiting)
            if not self._given_up():
                self._check_existence(counts)
                self._check_counts(counts)
                self._check_compaction(admin, self._table_topics & counts.keys())
        except _GivenUpError:
            logger.debug("nobody waits for the answers of the cluster any more")
        finally:
            admin.close()

    @property
    def _written(self) -> set[str]:
        """The topics outside of the application that it writes to under fixed names."""
        written = {topic for group in self._topics.groups for topic in group.sink_topics}
        if self._config.errors_dead_letter_queue_topic_name is not None:
            written.add(self._config.errors_dead_letter_queue_topic_name)
        return written - self._topics.repartition_topics.keys()

    def _counts(self, admin: ClusterAdmin, waiting: _Waiting) -> dict[str, int]:
        """The partition counts of all topics that exist."""
        external = self._topics.external_source_topics | self._global_topics | self._written
        asked = external | self._topics.repartition_topics.keys() | self._changelogs
        appear = Deadline(self._clock, _TOPICS_APPEAR_MS)
        while True:
            try:
                counts = admin.partition_counts(asked, _ANSWER_MS)
            except BrokerUnavailableError as error:
                if waiting.is_over:
                    raise
                waiting.goes_on(error.message.rstrip("."))
                continue
            if external <= counts.keys() or appear.passed or self._given_up():
                return counts
            self._clock.sleep_ms(_ASK_AGAIN_MS)

    def _check_existence(self, counts: Mapping[str, int]) -> None:
        missing = missing_source_topics(self._topics, counts)
        missing += sorted(self._global_topics - counts.keys())
        unwritable = sorted(self._written - counts.keys())
        advice = (
            "which the cluster does not have. Create the topics before the application is started "
            "(`millstream topics PROGRAM --create` does); probably a name is misspelt, or this is "
            f"another cluster ({self._config.bootstrap_servers})."
        )
        writes = f"writes to {_listed(unwritable)}"
        if missing:
            also = f" and {writes}" if unwritable else ""
            raise MissingSourceTopicError(
                f"The application reads {_listed(missing)}{also}, {advice}", topic=missing[0]
            )
        if unwritable:
            raise UnknownTopicError(f"The application {writes}, {advice}", topic=unwritable[0])

    def _check_counts(self, counts: Mapping[str, int]) -> None:
        topics = self._topics
        if any(group.source_patterns for group in topics.groups):
            # What matches is known when the members have subscribed, and may change at any time.
            return
        resolved = repartition_counts(topics, counts)
        tasks = tasks_of(topics.groups, {**counts, **resolved})
        specs = topics.repartition_topics
        expected = {name: (count, specs[name].config) for name, count in resolved.items()}
        topics_to_create(expected | changelog_counts(topics.groups, tasks), counts)

    def _check_compaction(self, admin: ClusterAdmin, topics: Collection[str]) -> None:
        """Warn of tables whose rows Kafka deletes with time."""
        try:
            settings = admin.topic_configs(topics, _ANSWER_MS)
        except StreamsError as error:
            # Running the application takes no right to read the settings of topics.
            logger.debug("it is not known whether the topics of tables are compacted: %s", error)
            return
        deleted = sorted(
            topic for topic, each in settings.items() if each.get("cleanup.policy") == "delete"
        )
        if deleted:
            logger.warning(
                "%s reads %s as %s, but Kafka deletes old records there (cleanup.policy=delete): "
                "rows that are not written again within the retention are missing for instances "
                "that start later or lose their state. Set cleanup.policy=compact, for example "
                "with kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config "
                "cleanup.policy=compact",
                self._config.application_id,
                _listed(deleted),
                "a table" if len(deleted) == 1 else "tables",
                self._config.bootstrap_servers,
                deleted[0],
            )


def committed_in_words(
    topology: Topology, config: StreamsConfig, tasks: Collection[str]
) -> list[str]:
    """Where the group has committed what tasks read from other programs: `in-0 from 120`.

    The offset reset policy stands where nothing is committed. Empty if the cluster does not tell.
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
        counts = admin.partition_counts({place.topic for place in read}, _ANSWER_MS)
        read = [place for place in read if place.partition < counts.get(place.topic, 0)]
        found = admin.committed_offsets(config.application_id, read, _ANSWER_MS)
    except StreamsError as error:
        logger.debug("it is not known where the group has committed: %s", error)
        return []
    finally:
        admin.close()
    starts = {
        place: policy(place.topic).start if offset is None else offset
        for place, offset in found.items()
    }
    return [f"{place.topic}-{place.partition} from {starts[place]}" for place in sorted(starts)]


def _quiet_settings(config: StreamsConfig) -> dict[str, Any]:
    """Of a client whose troubles are told here, once."""
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-admin")
    if not logger.isEnabledFor(logging.DEBUG):
        settings["log_level"] = 0
    return settings


class _GivenUpError(Exception):
    """Nobody waits for the cluster any more."""


class _Waiting:
    """Waits for a broker, and says so; ends at once where waiting will not help."""

    def __init__(
        self, config: StreamsConfig, protocol: str, clock: Clock, given_up: Callable[[], bool]
    ) -> None:
        self.timeout_ms = max(_FIRST_CONTACT_MS, config.task_timeout_ms)
        self._config = config
        self._protocol = protocol
        self._clock = clock
        self._given_up = given_up
        self._deadline = Deadline(clock, self.timeout_ms)
        self._began_ms = clock.monotonic_ms()
        self._warnings = LogInterval(clock, first_ms=_SAY_AFTER_MS)
        self._has_advised = False
        self._servers = config.bootstrap_servers.split(",")
        self._probe = ProtocolProbe(self._servers, protocol, given_up, clock, _PROBE_EACH_MS)

    @property
    def is_over(self) -> bool:
        """Whether it has waited long enough."""
        return self._deadline.passed

    def goes_on(self, reason: str) -> None:
        """There is no answer yet.

        Raises:
            BrokerUnavailableError: brokers are there, but want another security protocol.
        """
        if self._given_up():
            raise _GivenUpError
        if self._warnings.is_due:
            logger.warning(
                "%s: waits for a broker at %s, for %d s already, %d s at most: %s%s",
                self._config.application_id,
                self._config.bootstrap_servers,
                (self._clock.monotonic_ms() - self._began_ms) // 1_000,
                self.timeout_ms // 1_000,
                reason,
                "" if self._has_advised else _ADVICE,
            )
            self._has_advised = True
        if self._probe.is_certain():
            raise BrokerUnavailableError(
                f"No Kafka broker answered at {', '.join(self._servers)}: {reason}. Check "
                "bootstrap_servers, and that security_protocol is theirs."
                + protocol_hint(self._servers, self._protocol)
            )


def _listed(topics: list[str]) -> str:
    return ", ".join(map(repr, topics))
