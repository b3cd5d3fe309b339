"""Committed offsets of a consumer group: written under the member's generation, and read."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from kafka import errors as client_errors

from millstream.clock import Clock, Deadline
from millstream.kafka.kafka_python import OffsetCommitRequest, OffsetFetchRequest
from millstream.kafka.member.coordinator import MemberCoordinator
from millstream.kafka.member.events import CommitOffset
from millstream.record import TopicPartition

log = logging.getLogger("millstream.kafka.member.group_member")

#: Version 9 is of the next generation of the group protocol, where member epochs are checked.
_COMMIT_VERSION = 8
_FETCH_VERSION = 8
#: For how long a topic may be one that the coordinator has not heard of yet.
_UNKNOWN_TOPIC_MS = 2_000

#: Answers of a broker that is not, or not yet, the group's coordinator.
_ELSEWHERE = (
    client_errors.CoordinatorNotAvailableError,
    client_errors.NotCoordinatorError,
    client_errors.RequestTimedOutError,
)


class MemberOffsets:
    """Commits and fetches, on the client's event loop.

    A commit shares the connection of the joins, so that the broker sees it before a join sent
    after it: otherwise a rebalance would make its generation stale on the way. A fetch needs no
    generation and takes another connection, where no pending join can hold it up.

    Args:
        coordinator: the member's talk with its coordinator.
        stable_only: wait for offsets of open transactions (isolation level read_committed).
        clock: where the time is read.
    """

    def __init__(self, coordinator: MemberCoordinator, *, stable_only: bool, clock: Clock) -> None:
        self._coordinator = coordinator
        self._connections = coordinator.connections
        self._clock = clock
        self._stable_only = stable_only

    async def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        """Commit, trying again after errors that pass.

        What is committed of topics that do not exist any more is left out, with a warning: there is
        nowhere to go on. Follows Java's client only so far: that one tries for a minute, in which
        nobody works on the other topics.

        Raises:
            KafkaTimeoutError: the time was not enough; its cause is the last error.
            RebalanceInProgressError: of the client; the member is joining right now.
            CommitFailedError: the member is not in the group.
            KafkaError: what else the broker answered.
        """
        patience = Deadline(self._clock, _UNKNOWN_TOPIC_MS)
        tried_in: set[int] = set()

        async def attempt() -> None:
            try:
                await self._commit_once(offsets, tried_in)
            except client_errors.UnknownTopicOrPartitionError as error:
                if not patience.passed:
                    raise
                log.warning("offsets of %s are not committed: there is no such topic", error)

        await self._insist(attempt, timeout_ms)

    async def fetch(
        self, partitions: Collection[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, CommitOffset | None]:
        """Read what is committed; None where nothing is. Raises as `commit` does."""
        found: dict[TopicPartition, CommitOffset | None] = dict.fromkeys(partitions)
        if found:
            found.update(await self._insist(lambda: self._fetch_once(partitions), timeout_ms))
        return found

    async def _insist(self, attempt: Any, timeout_ms: int) -> Any:
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
                # That the time is over says less than what it was spent on.
                if last is None or not isinstance(error, client_errors.KafkaTimeoutError):
                    last = error
            if deadline.passed:
                raise client_errors.KafkaTimeoutError(
                    f"no success within {timeout_ms} ms, at last "
                    f"{last or 'the coordinator was not found'}"
                ) from last
            backoff_ms = deadline.remaining_ms(coordinator.config["retry_backoff_ms"])
            await connections.sleep(backoff_ms / 1000)

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, CommitOffset], tried_in: set[int]
    ) -> None:
        coordinator = self._coordinator
        generation = coordinator.generation_if_stable()
        if generation is None:
            if coordinator.joining:
                raise client_errors.RebalanceInProgressError()
            raise client_errors.CommitFailedError()
        # What was owned before a rebalance may be somebody else's by now, who is further on.
        tried_in.add(generation.generation_id)
        if len(tried_in) > 1:
            raise client_errors.RebalanceInProgressError()
        # No await between here and the request: a join must not get in between.
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
            self._fetch_request(partitions), node_id=coordinator.side_node
        )
        if response.API_VERSION >= 8:
            (answer,) = response.groups
        else:
            answer = response
        self._check(answer.error_code)
        found: dict[TopicPartition, CommitOffset] = {}
        for topic in answer.topics:
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
        # The same question in the fields of both layouts: one group up to version 7, many from 8.
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
        if isinstance(error, _ELSEWHERE):
            coordinator.coordinator_dead(error)
        elif isinstance(error, client_errors.RebalanceInProgressError):
            coordinator.request_rejoin()
        elif isinstance(error, client_errors.IllegalGenerationError):
            coordinator.reset_generation(coordinator.member_id)
        elif isinstance(error, client_errors.UnknownMemberIdError):
            coordinator.reset_generation()
        elif isinstance(error, client_errors.FencedInstanceIdError):
            coordinator.refused_for_good(error)
        raise error
