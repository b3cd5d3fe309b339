"""The admin client for queries of the cluster and changes to its topics.

Every call has a deadline for all of its requests.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
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
from millstream.kafka.settings.librdkafka_settings import create_client
from millstream.kafka.user_permissions import AccessContext, user_of
from millstream.record import TopicPartition

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 30_000
_REACHABLE_TIMEOUT_MS: Final = 10_000
_REACHABLE_STEP_MS: Final = 500
_RETRY_MS: Final = 50
#: The additional wait after a request's timeout, because librdkafka's timeout error explains more.
_GRACE_S: Final = 1.0

#: The values for a missing topic id.
_NO_TOPIC_IDS: Final = frozenset({"None", "A" * 22})
#: As with `exclude.internal.topics`, a pattern never matches Kafka's internal topics.
_BROKER_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)

_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]

_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


class ClusterAdmin:
    """Queries the cluster and changes its topics.

    Requests raise BrokerUnavailableError if no broker responds in time, AccessDeniedError if the
    user lacks the permission, and UnknownTopicError for offsets of missing partitions.

    Thread-safe: librdkafka correlates requests and responses, and the only state of this object is
    the latest error, for which races do not matter. When one thread closes the client, pending
    calls of other threads complete. A `replication_factor` of -1 means the broker's default.
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
        """Wait until a broker responds.

        A rejected login or certificate ends the wait immediately. `on_wait` is called twice per
        second with the reason for the wait. Its exceptions end the wait.
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
                    raise BrokerUnavailableError(
                        f"No Kafka broker responded at {self._servers} within "
                        f"{timeout_ms / 1_000:g} s: {reason}. Check bootstrap_servers, that the "
                        "brokers are running and reachable from this machine, and that "
                        "security_protocol matches theirs."
                        + protocol_hint(self._servers.split(","), self._protocol)
                    ) from None
                on_wait(reason)

    def partition_counts(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, int]:
        """Return the partition counts of the topics that exist. Never creates topics."""
        return self._partition_counts(topics, Deadline(self._clock, timeout_ms))

    def topic_ids(self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS) -> dict[str, str]:
        """Return the ids of existing topics (KIP-516, Kafka 2.8).

        A recreated topic has a new id."""
        found = self._descriptions(topics, Deadline(self._clock, timeout_ms))
        ids = {topic: str(description.topic_id) for topic, description in found.items()}
        return {topic: each for topic, each in ids.items() if each not in _NO_TOPIC_IDS}

    def replica_racks(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks (`broker.rack`) of each partition's replicas.

        Omits topics that do not exist, and partitions with a replica on a broker that has no rack
        or is unavailable.
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
        """Create topics (name, partition count, config) and wait until they exist.

        An existing topic is accepted if it has the requested partition count. Otherwise, or if the
        broker rejects a config, raises TopologyError. A topic that is still being deleted is
        created again after the deletion. The timeout is for all topics together.
        """
        deadline = Deadline(self._clock, timeout_ms)
        missing = {name: (partitions, config) for name, partitions, config in topics}
        problem = ""
        while missing:
            for name, error in self._create_once(missing, deadline).items():
                latest = creation_problem(name, error, self._user)
                # An earlier error explains more than a timeout.
                if not problem or error.code() != KafkaError._TIMED_OUT:
                    problem = latest
            try:
                counts = self._partition_counts(missing, deadline)
            except BrokerUnavailableError:
                if not problem:
                    raise
                counts = {}
            for name, count in counts.items():
                partitions, _ = missing.pop(name)
                if count != partitions:
                    raise TopologyError(
                        f"The topic exists with {count} partitions, but {partitions} are needed. "
                        "If an earlier version of the application created it, delete it "
                        "(with its records), or choose another application_id.",
                        topic=name,
                    )
            if missing:
                if deadline.passed:
                    raise BrokerUnavailableError(
                        f"Topics were not created within {timeout_ms} ms: "
                        f"{', '.join(sorted(missing))}. {problem or 'They are not visible yet'}."
                    )
                self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition, including open transactions."""
        return self._list_offsets(partitions, _LATEST, timeout_ms)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._list_offsets(partitions, _EARLIEST, timeout_ms)

    def committed_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, int | None]:
        """Return a group's committed offset for each partition; None without a commit."""
        return committed_offsets(self._settings, group_id, partitions, timeout_ms, self._clock)

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[TopicPartition, Future[Any]]:
        """Start deleting the records before an offset of each partition.

        Only the exceptions of the futures are relevant. `close` aborts pending deletions.
        """
        if not before:
            return {}
        requested = [ClientPartition(*partition, offset) for partition, offset in before.items()]
        client = self._client
        try:
            futures = client.delete_records(requested, request_timeout=timeout_ms / 1_000)
        except KafkaException as error:
            raise self._failure(error.args[0], "Deleting records", None, client) from error
        return {
            TopicPartition(partition.topic, partition.partition): future
            for partition, future in futures.items()
        }

    def topic_configs(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, dict[str, str | None]]:
        """Return the effective configs of the topics that exist; None for hidden values."""
        requested = [ConfigResource(ResourceType.TOPIC, topic) for topic in set(topics)]
        if not requested:
            return {}
        deadline = Deadline(self._clock, timeout_ms)
        results = self._request(
            lambda client, timeout_s: client.describe_configs(requested, request_timeout=timeout_s),
            deadline,
            "Reading topic configs",
        )
        return {
            resource.name: {name: entry.value for name, entry in config.items()}
            for resource, config in results.items()
        }

    def close(self) -> None:
        """Close the connections. Can be called several times."""
        # The client has no close method: dropping its last reference closes it.
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
        names = list(dict.fromkeys(topics))
        if not names:
            return {}
        return self._request(
            lambda client, timeout_s: client.describe_topics(
                TopicCollection(names), request_timeout=timeout_s
            ),
            deadline,
            "Looking up topics",
        )

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, timeout_ms: int
    ) -> dict[TopicPartition, int]:
        requested = {ClientPartition(*partition): spec for partition in partitions}
        if not requested:
            return {}
        deadline = Deadline(self._clock, timeout_ms)
        # For missing partitions, librdkafka only reports that they have no leader.
        counts = self._partition_counts((partition.topic for partition in requested), deadline)
        for partition in requested:
            if partition.partition >= counts.get(partition.topic, 0):
                raise UnknownTopicError(
                    "The topic or partition does not exist, but its offsets are needed.",
                    topic=partition.topic,
                    partition=partition.partition,
                )
        offsets = self._offsets(requested, deadline)
        for partition in requested.keys() - offsets.keys():
            raise UnknownTopicError(
                "The topic was deleted while its offsets were requested.",
                topic=partition.topic,
                partition=partition.partition,
            )
        return {
            TopicPartition(partition.topic, partition.partition): offset
            for partition, offset in offsets.items()
        }

    def _offsets(
        self, requested: Mapping[ClientPartition, OffsetSpec], deadline: Deadline, lowest: int = 0
    ) -> dict[ClientPartition, int]:
        """Return the offset for the spec of each partition. Omits missing partitions.

        librdkafka may return an unknown offset (-1001, less than `lowest`) without an error. Such
        partitions are requested again, until the deadline.
        """
        found: dict[ClientPartition, int] = {}
        left = dict(requested)

        def list_offsets(
            client: AdminClient, timeout_s: float
        ) -> dict[ClientPartition, Future[ListOffsetsResultInfo]]:
            return client.list_offsets(
                left, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout_s
            )

        while True:
            results = self._request(list_offsets, deadline, "Listing offsets")
            found.update(
                (partition, result.offset)
                for partition, result in results.items()
                if result.offset >= lowest
            )
            left = {each: requested[each] for each in results if each not in found}
            if not left:
                return found
            if deadline.passed:
                first = min(f"{partition.topic}-{partition.partition}" for partition in left)
                raise BrokerUnavailableError(
                    f"Listing offsets failed: the brokers returned no offsets of {len(left)} "
                    f"partitions, including {first}. Check that the partitions have leaders."
                )
            self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))

    def _request(
        self,
        request: Callable[[AdminClient, float], Mapping[_Key, Future[_Result]]],
        deadline: Deadline,
        action: str,
        ignoring: Collection[int] = UNKNOWN_TOPIC,
    ) -> dict[_Key, _Result]:
        """Send a request, retry after transient errors, and return the results by key."""
        # Keep a reference for the whole call: dropping the last reference closes the client.
        client = self._client
        while True:
            results, errors = self._request_once(client, request, deadline, action)
            again = False
            for key, error in errors.items():
                if error.code() in TRANSIENT and not deadline.passed:
                    again = True
                elif error.code() not in ignoring:
                    raise self._failure(error, action, key, client)
            if not again:
                return results
            self._clock.sleep_ms(deadline.remaining_ms(_RETRY_MS))

    def _request_once(
        self,
        client: AdminClient,
        request: Callable[[AdminClient, float], Mapping[_Key, Future[_Result]]],
        deadline: Deadline,
        action: str,
    ) -> tuple[dict[_Key, _Result], dict[_Key, KafkaError]]:
        timeout_s = max(1, deadline.remaining_ms(_TIMEOUT_MS)) / 1_000
        results: dict[_Key, _Result] = {}
        errors: dict[_Key, KafkaError] = {}
        try:
            futures = request(client, timeout_s)
            for key, future in futures.items():
                try:
                    results[key] = future.result(timeout_s + _GRACE_S)
                except KafkaException as error:
                    errors[key] = error.args[0]
        except KafkaException as error:
            raise self._failure(error.args[0], action, None, client) from error
        except FutureTimeoutError as error:
            raise BrokerUnavailableError(
                f"{action} failed: no response within {timeout_s:g} s."
            ) from error
        return results, errors

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
        _, errors = self._request_once(
            self._client,
            lambda client, timeout_s: client.create_topics(
                new, operation_timeout=timeout_s, request_timeout=timeout_s
            ),
            deadline,
            "Creating topics",
        )
        return errors

    def _failure(
        self, error: KafkaError, action: str, key: object, client: AdminClient
    ) -> StreamsError:
        if error.code() in TRANSIENT:
            client.poll(0)
            if self._access_error is not None:
                return self._access_error
            hint = f" ({self._connection_error})" if self._connection_error else ""
            return BrokerUnavailableError(
                f"{action} failed: {error.str().rstrip('.')}{hint}. Check that the brokers at "
                f"{self._servers} are running and reachable."
            )
        if isinstance(key, ClientPartition):
            return client_error(
                error,
                action,
                topic=key.topic,
                partition=key.partition,
                access=AccessContext(self._user),
            )
        topic = getattr(key, "name", key)
        access = AccessContext(
            self._user, "DescribeConfigs" if hasattr(key, "restype") else "Describe"
        )
        return client_error(
            error, action, topic=None if topic is None else str(topic), access=access
        )

    def _on_client_error(self, error: KafkaError) -> None:
        if is_access_error(error):
            self._access_error = login_error(error, self._settings)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            # Each broker's error was reported before, so "all brokers down" adds no information.
            self._connection_error = error.str().rstrip(".")
