"""Committing and fetching a consumer group's offsets."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from kafka import errors as client_errors

from millstream.clock import Clock, Deadline
from millstream.kafka.kafka_python import OffsetCommitRequest, OffsetFetchRequest
from millstream.kafka.membership.coordinator import MemberCoordinator
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import TopicPartition

log = logging.getLogger("millstream.kafka.membership.group_member")

#: The maximum versions of the requests. Version 9 is for the new group protocol (KIP-848), which
#: checks member epochs.
_COMMIT_VERSION = 8
_FETCH_VERSION = 8
#: How long commits for an unknown topic are retried: the coordinator may not have the metadata of a
#: new topic yet.
_UNKNOWN_TOPIC_MS = 2_000

#: Errors after which the group coordinator must be looked up again.
_COORDINATOR_MOVED = (
    client_errors.CoordinatorNotAvailableError,
    client_errors.NotCoordinatorError,
    client_errors.RequestTimedOutError,
)


class GroupOffsets:
    """Commits and fetches offsets, on kafka-python's event loop.

    A commit contains the member's generation. It is sent on the same connection as joins, so the
    broker receives it before a later join, which could make the generation stale. A fetch needs no
    generation and is sent on another connection, where a pending join cannot block it. With
    `stable_only` (isolation level read_committed), a fetch waits until pending transactional offset
    commits are complete.
    """

    def __init__(self, coordinator: MemberCoordinator, *, stable_only: bool, clock: Clock) -> None:
        self._coordinator = coordinator
        self._connections = coordinator.connections
        self._clock = clock
        self._stable_only = stable_only

    async def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        """Commit offsets, with retries after retriable errors.

        Offsets of topics that no longer exist are skipped with a warning, because they are not
        needed. The Java client retries them for a minute, and processes no other topics meanwhile.

        Raises kafka-python's errors.

        Raises:
            KafkaTimeoutError: the timeout expired; the cause is the last error.
            RebalanceInProgressError: the member is joining, or has joined again since the first
                attempt.
            CommitFailedError: the member is not in the group.
            KafkaError: the broker returned any other error.
        """
        unknown_topic_deadline = Deadline(self._clock, _UNKNOWN_TOPIC_MS)
        attempted_generations: set[int] = set()

        async def attempt() -> None:
            try:
                await self._commit_once(offsets, attempted_generations)
            except client_errors.UnknownTopicOrPartitionError as error:
                if not unknown_topic_deadline.passed:
                    raise
                log.warning("offsets of %s were not committed: the topic does not exist", error)

        await self._retry(attempt, timeout_ms)

    async def fetch(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        """Fetch committed offsets; None for partitions without a commit.

        Raises kafka-python's KafkaTimeoutError or another KafkaError.
        """
        found: dict[TopicPartition, CommitOffset | None] = dict.fromkeys(partitions)
        if found:
            found.update(await self._retry(lambda: self._fetch_once(partitions), timeout_ms))
        return found

    async def _retry(self, attempt: Any, timeout_ms: int) -> Any:
        coordinator, connections = self._coordinator, self._connections
        deadline = Deadline(self._clock, timeout_ms)
        last: Exception | None = None
        while True:
            try:
                left_ms = deadline.remaining_ms(timeout_ms)
                if await coordinator.ensure_coordinator_ready_async(timeout_ms=left_ms):
                    left_ms = deadline.remaining_ms(timeout_ms)
                    return await connections.wait_for(connections.call_soon(attempt), left_ms)
            except client_errors.RetriableError as error:
                # An earlier error is more informative than a timeout.
                if last is None or not isinstance(error, client_errors.KafkaTimeoutError):
                    last = error
            if deadline.passed:
                raise client_errors.KafkaTimeoutError(
                    f"The request did not succeed within {timeout_ms} ms; the last error: "
                    f"{last or 'the coordinator was not found'}"
                ) from last
            backoff_ms = deadline.remaining_ms(coordinator.config["retry_backoff_ms"])
            await connections.sleep(backoff_ms / 1000)

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, CommitOffset], attempted_generations: set[int]
    ) -> None:
        coordinator = self._coordinator
        generation = coordinator.generation_if_stable()
        if generation is None:
            if coordinator.joining:
                raise client_errors.RebalanceInProgressError()
            raise client_errors.CommitFailedError()
        # Partitions of an earlier generation may have a new owner with newer commits.
        attempted_generations.add(generation.generation_id)
        if len(attempted_generations) > 1:
            raise client_errors.RebalanceInProgressError()
        # There must be no await before the request is sent, so that no join is sent in between.
        request = self._commit_request(offsets, generation)
        response = await self._connections.send(request, node_id=coordinator.coordinator_id)
        unknown: list[str] = []
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == client_errors.UnknownTopicOrPartitionError.errno:
                    unknown.append(f"{topic.name}-{partition.partition_index}")
                    continue
                self._check(partition.error_code, topic.name, partition.partition_index)
        if unknown:
            raise client_errors.UnknownTopicOrPartitionError(", ".join(unknown))

    def _commit_request(
        self, offsets: Mapping[TopicPartition, CommitOffset], generation: Any
    ) -> Any:
        by_topic: dict[str, list[Any]] = {}
        partition_of = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
        for (topic, partition), (offset, metadata, leader_epoch) in offsets.items():
            by_topic.setdefault(topic, []).append(
                partition_of(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=-1 if leader_epoch is None else leader_epoch,
                    committed_metadata=metadata,
                )
            )
        return OffsetCommitRequest(
            max_version=_COMMIT_VERSION,
            group_id=self._coordinator.group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._coordinator.group_instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )

    async def _fetch_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, CommitOffset]:
        coordinator = self._coordinator
        response = await self._connections.send(
            self._fetch_request(partitions), node_id=coordinator.alternate_node
        )
        if response.API_VERSION >= 8:
            (group,) = response.groups
        else:
            group = response
        self._check(group.error_code)
        found: dict[TopicPartition, CommitOffset] = {}
        for topic in group.topics:
            for state in topic.partitions:
                self._check(state.error_code, topic.name, state.partition_index)
                if state.committed_offset < 0:
                    continue
                epoch = state.committed_leader_epoch
                found[TopicPartition(topic.name, state.partition_index)] = CommitOffset(
                    offset=state.committed_offset,
                    metadata=state.metadata or "",
                    leader_epoch=epoch if epoch is not None and epoch >= 0 else None,
                )
        return found

    def _fetch_request(self, partitions: Collection[TopicPartition]) -> Any:
        group_id = self._coordinator.group_id
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        group_of = OffsetFetchRequest.OffsetFetchRequestGroup
        # Set the fields of both layouts: versions up to 7 have one group, later ones a list.
        return OffsetFetchRequest(
            max_version=_FETCH_VERSION,
            group_id=group_id,
            require_stable=self._stable_only,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic.items()
            ],
            groups=[
                group_of(
                    group_id=group_id,
                    topics=[
                        group_of.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                        for topic, numbers in by_topic.items()
                    ],
                )
            ],
        )

    def _check(self, error_code: int, topic: str = "", partition: int = -1) -> None:
        if not error_code:
            return
        coordinator = self._coordinator
        error = client_errors.for_code(error_code)(f"{topic}-{partition}" if topic else "")
        if isinstance(error, _COORDINATOR_MOVED):
            coordinator.coordinator_dead(error)
        elif isinstance(error, client_errors.RebalanceInProgressError):
            coordinator.request_rejoin()
        elif isinstance(error, client_errors.IllegalGenerationError):
            coordinator.reset_generation(coordinator.member_id)
        elif isinstance(error, client_errors.UnknownMemberIdError):
            coordinator.reset_generation()
        elif isinstance(error, client_errors.FencedInstanceIdError):
            coordinator.rejected_permanently(error)
        raise error
