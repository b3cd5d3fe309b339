"""Questions to the cluster and changes of its topics. Every call has a deadline for all that it
does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
    AdminClient,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from millstream.clock import Clock, Deadline, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    StreamsError,
    TopologyError,
    UnknownTopicError,
)
from millstream.kafka.cluster.committed_offsets import committed_offsets
from millstream.kafka.cluster.listener_probe import protocol_hint
from millstream.kafka.librdkafka_errors import (
    TRANSIENT,
    UNKNOWN_TOPIC,
    client_error,
    creation_problem,
    is_access_error,
    login_error,
)
from millstream.kafka.rights import Needs, user_of
from millstream.kafka.settings.clients import create_client
from millstream.record import TopicPartition

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 30_000
_REACHABLE_TIMEOUT_MS: Final = 10_000
_REACHABLE_STEP_MS: Final = 500
_RETRY_MS: Final = 50
#: What the future of a request gets beyond the request's own timeout, which says more.
_GRACE_S: Final = 1.0

#: What stands for no topic id.
_NO_TOPIC_IDS: Final = frozenset({"None", "A" * 22})
#: Follows `exclude.internal.topics`: a pattern never means the broker's own topics.
_BROKER_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)

_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]

_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


class ClusterAdmin:
    """Asks the cluster, and changes its topics.

    Thread-safe: librdkafka matches each answer to its question, and what is kept here are notes of
    the last error, of which any will do. When one thread closes it, calls that others have under
    way come to their own end.

    Args:
        settings: from `librdkafka_settings` for "admin".
        replication_factor: of the topics it creates; -1 is the broker's default.
        clock: where deadlines are measured.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        replication_factor: int = -1,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings
        self._servers = str(settings["bootstrap.servers"])
        self._protocol = str(settings.get("security.protocol", "PLAINTEXT"))
        self._replication_factor = replication_factor
        self._user = user_of(settings)
        self._connection_error = ""
        self._access_error: StreamsError | None = None
        self._admin: AdminClient | None = create_client(
            AdminClient, {**settings, "error_cb": self._on_client_error}
        )

    def check_reachable(
        self,
        timeout_ms: int = _REACHABLE_TIMEOUT_MS,
        on_wait: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Make sure that a broker answers.

        Args:
            timeout_ms: how long one is waited for.
            on_wait: told twice a second why none has answered yet; what it raises ends the waiting.

        Raises:
            BrokerUnavailableError: none did in time; names the address and what the client ran
                into.
            AccessDeniedError: it refuses the login, or its certificate is not trusted; raised as
                soon as that is known.
        """
        deadline = Deadline(self._clock, timeout_ms)
        client = self._client
        while True:
            try:
                client.list_topics(
                    timeout=max(1, deadline.remaining_ms(_REACHABLE_STEP_MS)) / 1_000
                )
                return
            except KafkaException as error:
                client.poll(0)
                if self._access_error is not None:
                    raise self._access_error from error
                reason = self._connection_error or error.args[0].str().rstrip(".")
                if deadline.passed:
                    raise self._unreachable(timeout_ms, reason) from None
                on_wait(reason)

    def partition_counts(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, int]:
        """The partition count of each of the topics that exists; the others are left out, and not
        created.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not see a topic.
        """
        return self._partition_counts(topics, Deadline(self._clock, timeout_ms))

    def topic_ids(self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> dict[str, str]:
        """The id of each of the topics that exists (KIP-516): one that is created again under its
        name has another. Brokers before Kafka 2.8 have none.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not see a topic.
        """
        found = self._descriptions(topics, Deadline(self._clock, timeout_ms))
        ids = {topic: str(description.topic_id) for topic, description in found.items()}
        return {topic: each for topic, each in ids.items() if each not in _NO_TOPIC_IDS}

    def replica_racks(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, frozenset[str]]:
        """The racks (`broker.rack`) of the brokers with replicas of each partition.

        Left out are the partitions of which some broker has no rack or is not known at present,
        and topics that do not exist.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not see a topic.
        """
        deadline = Deadline(self._clock, timeout_ms)
        found: dict[TopicPartition, frozenset[str]] = {}
        for topic, description in self._descriptions(topics, deadline).items():
            for partition in description.partitions:
                racks = [replica.rack for replica in partition.replicas if replica.rack]
                if racks and len(racks) == len(partition.replicas):
                    found[TopicPartition(topic, partition.id)] = frozenset(racks)
        return found

    def topics_matching(
        self, pattern: str | re.Pattern[str], timeout_ms: int = _TIMEOUT_MS
    ) -> list[str]:
        """The topics whose whole name matches, sorted; never the broker's own.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        client = self._client
        try:
            topics = client.list_topics(timeout=timeout_ms / 1_000).topics
        except KafkaException as error:
            raise self._failure(error.args[0], "Listing topics", None, client) from error
        matches = re.compile(pattern).fullmatch
        return sorted(name for name in topics if matches(name) and name not in _BROKER_TOPICS)

    def create_topics(
        self, topics: Iterable[tuple[str, int, Mapping[str, str]]], timeout_ms: int = _TIMEOUT_MS
    ) -> None:
        """Create topics and wait until they are there.

        A topic that exists already is fine when it has the partitions asked for. One that is still
        being deleted is waited for.

        Args:
            topics: of each its name, its partition count, and its config.
            timeout_ms: for everything together.

        Raises:
            TopologyError: one exists with another partition count, or the broker refuses its
                config.
            AccessDeniedError: the user may not create topics.
            BrokerUnavailableError: they were not there in time.
        """
        deadline = Deadline(self._clock, timeout_ms)
        missing = {name: (partitions, config) for name, partitions, config in topics}
        because = ""
        while missing:
            for name, error in self._create_once(missing, deadline).items():
                problem = creation_problem(name, error, self._user)
                # What the broker said before tells more than that the time is over.
                if not because or error.code() != KafkaError._TIMED_OUT:
                    because = problem
            try:
                counts = self._partition_counts(missing, deadline)
            except BrokerUnavailableError:
                if not because:
                    raise
                counts = {}
            for name, count in counts.items():
                partitions, _ = missing.pop(name)
                if count != partitions:
                    raise TopologyError(
                        f"The topic exists with {count} partitions, but {partitions} are needed. "
                        "If it is left from an earlier version of the application, delete it "
                        "(losing what it holds), or choose another application_id.",
                        topic=name,
                    )
            if missing:
                if deadline.passed:
                    raise BrokerUnavailableError(
                        f"Topics were not created within {timeout_ms} ms: "
                        f"{', '.join(sorted(missing))}. {because or 'They are not visible yet'}."
                    )
                self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, open transactions included.

        Raises:
            UnknownTopicError: a partition does not exist.
            BrokerUnavailableError: not all brokers answered in time.
        """
        return self._list_offsets(partitions, _LATEST, timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """The offset of the first record that each partition still has; raises as `end_offsets`."""
        return self._list_offsets(partitions, _EARLIEST, timeout_ms)

    def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int | None]:
        """The offset that a group has committed of each partition; None where it has none.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not see the group.
        """
        return committed_offsets(self._settings, group_id, partitions, timeout_ms, self._clock)

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, Future[Any]]:
        """Delete the records before an offset of each partition, without waiting for it. A close
        puts an end to what is under way.

        Returns:
            For each partition what becomes of it; its result is of no interest, its exception tells
            why not.
        """
        if not before:
            return {}
        asked = [ClientPartition(*partition, offset) for partition, offset in before.items()]
        client = self._client
        try:
            futures = client.delete_records(asked, request_timeout=timeout_ms / 1_000)
        except KafkaException as error:
            raise self._failure(error.args[0], "Deleting records", None, client) from error
        return {
            TopicPartition(partition.topic, partition.partition): future
            for partition, future in futures.items()
        }

    def topic_configs(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, dict[str, str | None]]:
        """The effective config of each of the topics that exists; None for values the broker hides.

        Raises:
            BrokerUnavailableError: no broker answered in time.
            AccessDeniedError: the user may not see a config.
        """
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in set(topics)]
        if not asked:
            return {}
        deadline = Deadline(self._clock, timeout_ms)
        answers = self._ask(
            lambda client, timeout_s: client.describe_configs(asked, request_timeout=timeout_s),
            deadline,
            "Reading topic configs",
        )
        return {
            resource.name: {name: entry.value for name, entry in config.items()}
            for resource, config in answers.items()
        }

    def close(self) -> None:
        """Close the connections. Further calls do nothing."""
        # The client has no close of its own: it ends with its last reference.
        self._admin = None

    @property
    def _client(self) -> AdminClient:
        client = self._admin
        if client is None:
            raise IllegalStateError("The admin client is closed.")
        return client

    def _partition_counts(self, topics: Iterable[str], deadline: Deadline) -> dict[str, int]:
        return {
            topic: len(description.partitions)
            for topic, description in self._descriptions(topics, deadline).items()
        }

    def _descriptions(
        self, topics: Iterable[str], deadline: Deadline
    ) -> dict[str, TopicDescription]:
        """What the cluster knows of each of the topics that exists."""
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        return self._ask(
            lambda client, timeout_s: client.describe_topics(
                TopicCollection(names), request_timeout=timeout_s
            ),
            deadline,
            "Looking up topics",
        )

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        asked = {ClientPartition(*partition): spec for partition in partitions}
        if not asked:
            return {}
        deadline = Deadline(self._clock, timeout_ms)
        # Asked for what does not exist, librdkafka only says that it has no leader.
        counts = self._partition_counts((partition.topic for partition in asked), deadline)
        for partition in asked:
            if partition.partition >= counts.get(partition.topic, 0):
                raise UnknownTopicError(
                    "The offsets of a topic or partition are needed that does not exist.",
                    topic=partition.topic,
                    partition=partition.partition,
                )
        offsets = self._offsets(asked, deadline)
        for partition in asked.keys() - offsets.keys():
            raise UnknownTopicError(
                "The topic was deleted while its offsets were asked for.",
                topic=partition.topic,
                partition=partition.partition,
            )
        return {
            TopicPartition(partition.topic, partition.partition): offset
            for partition, offset in offsets.items()
        }

    def _offsets(
        self, asked: Mapping[ClientPartition, OffsetSpec], deadline: Deadline, lowest: int = 0
    ) -> dict[ClientPartition, int]:
        """The offset that each partition has for its spec; partitions that do not exist are left
        out.

        librdkafka may answer with an offset that is not known (-1001), and without an error. Such a
        partition is asked for again.

        Args:
            asked: the spec for each partition.
            deadline: for all attempts.
            lowest: the lowest offset that is an answer.

        Raises:
            BrokerUnavailableError: an offset was not known in time.
        """
        found: dict[ClientPartition, int] = {}
        left = dict(asked)
        while True:
            answers = self._listed_offsets(left, deadline)
            found.update(
                (place, answer.offset)
                for place, answer in answers.items()
                if answer.offset >= lowest
            )
            left = {place: asked[place] for place in answers if place not in found}
            if not left:
                return found
            if deadline.passed:
                first = min(f"{place.topic}-{place.partition}" for place in left)
                raise BrokerUnavailableError(
                    f"Asking for offsets failed: those of {len(left)} partitions are not known to "
                    f"the brokers, among them {first}. Check that the partitions have leaders."
                )
            self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))

    def _listed_offsets(
        self, asked: Mapping[ClientPartition, OffsetSpec], deadline: Deadline
    ) -> dict[ClientPartition, ListOffsetsResultInfo]:
        return self._ask(
            lambda client, timeout_s: client.list_offsets(
                dict(asked),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=timeout_s,
            ),
            deadline,
            "Asking for offsets",
        )

    def _ask(
        self,
        request: Callable[[AdminClient, float], Mapping[_Key, Future[_Result]]],
        deadline: Deadline,
        what: str,
        ignoring: Collection[int] = UNKNOWN_TOPIC,
    ) -> dict[_Key, _Result]:
        """The answers about each topic; asked for again while a broker is not ready."""
        # Kept for the whole call: the client ends with its last reference.
        client = self._client
        while True:
            answers, errors = self._ask_once(client, request, deadline, what)
            again = False
            for key, error in errors.items():
                if error.code() in TRANSIENT and not deadline.passed:
                    again = True
                elif error.code() not in ignoring:
                    raise self._failure(error, what, key, client)
            if not again:
                return answers
            self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))

    def _ask_once(
        self,
        client: AdminClient,
        request: Callable[[AdminClient, float], Mapping[_Key, Future[_Result]]],
        deadline: Deadline,
        what: str,
    ) -> tuple[dict[_Key, _Result], dict[_Key, KafkaError]]:
        timeout_s = max(1, deadline.remaining_ms(_TIMEOUT_MS)) / 1_000
        answers: dict[_Key, _Result] = {}
        errors: dict[_Key, KafkaError] = {}
        try:
            futures = request(client, timeout_s)
            for key, future in futures.items():
                try:
                    answers[key] = future.result(timeout_s + _GRACE_S)
                except KafkaException as error:
                    errors[key] = error.args[0]
        except KafkaException as error:
            raise self._failure(error.args[0], what, None, client) from error
        except FutureTimeoutError as error:
            raise BrokerUnavailableError(
                f"{what} failed: no answer within {timeout_s:g} s."
            ) from error
        return answers, errors

    def _create_once(
        self, topics: Mapping[str, tuple[int, Mapping[str, str]]], deadline: Deadline
    ) -> dict[str, KafkaError]:
        new = [
            NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=self._replication_factor,
                config=dict(config),
            )
            for name, (partitions, config) in topics.items()
        ]
        _, errors = self._ask_once(
            self._client,
            lambda client, timeout_s: client.create_topics(
                new, operation_timeout=timeout_s, request_timeout=timeout_s
            ),
            deadline,
            "Creating topics",
        )
        return errors

    def _failure(
        self, error: KafkaError, what: str, key: object, client: AdminClient
    ) -> StreamsError:
        if error.code() in TRANSIENT:
            client.poll(0)
            if self._access_error is not None:
                return self._access_error
            because = f" ({self._connection_error})" if self._connection_error else ""
            return BrokerUnavailableError(
                f"{what} failed: {error.str().rstrip('.')}{because}. Check that the brokers at "
                f"{self._servers} run and can be reached."
            )
        if isinstance(key, ClientPartition):
            return client_error(
                error, what, topic=key.topic, partition=key.partition, needs=Needs(self._user)
            )
        topic = getattr(key, "name", key)
        needs = Needs(self._user, "DescribeConfigs" if hasattr(key, "restype") else "Describe")
        return client_error(error, what, topic=None if topic is None else str(topic), needs=needs)

    def _unreachable(self, timeout_ms: int, reason: str) -> BrokerUnavailableError:
        return BrokerUnavailableError(
            f"No Kafka broker answered at {self._servers} within {timeout_ms / 1_000:g} s: "
            f"{reason}. Check bootstrap_servers, that the brokers run "
            "and can be reached from this machine, and that security_protocol is theirs."
            + protocol_hint(self._servers.split(","), self._protocol)
        )

    def _on_client_error(self, error: KafkaError) -> None:
        if is_access_error(error):
            self._access_error = login_error(error, self._settings)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            # That all brokers are down follows from what was said of each of them.
            self._connection_error = error.str().rstrip(".")
