"""Answers of a simulated broker to kafka-python's requests to a group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from kafka import errors as client_errors
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from millstream.record import TopicPartition
from simulation.broker.cluster import Cluster
from simulation.broker.group import Committed, JoinAnswer

NOT_COORDINATOR: Final[int] = client_errors.NotCoordinatorError.errno
NOT_AVAILABLE: Final[int] = client_errors.CoordinatorNotAvailableError.errno
UNKNOWN_TOPIC: Final[int] = client_errors.UnknownTopicOrPartitionError.errno

Reply = Callable[[Any], None]


def answer(cluster: Cluster, broker: int, request: Any, reply: Reply) -> None:
    """Let a broker answer a request, at once or later."""
    if isinstance(request, FindCoordinatorRequest):
        _find(cluster, reply)
    elif isinstance(request, MetadataRequest):
        _metadata(cluster, request, reply)
    elif isinstance(request, OffsetFetchRequest):
        # Other brokers than the coordinator reject a fetch.
        _fetch(cluster, broker, request, reply)
    elif broker != cluster.coordinator:
        reply(_refusal(request))
    elif isinstance(request, JoinGroupRequest):
        _join(cluster, request, reply)
    elif isinstance(request, SyncGroupRequest):
        _sync(cluster, request, reply)
    elif isinstance(request, HeartbeatRequest):
        error = cluster.group.heartbeat(
            request.member_id, request.group_instance_id, request.generation_id
        )
        reply(SimpleNamespace(error_code=error))
    elif isinstance(request, LeaveGroupRequest):
        members = [
            SimpleNamespace(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=cluster.group.leave(member.member_id, member.group_instance_id),
            )
            for member in request.members
        ]
        reply(SimpleNamespace(error_code=0, members=members))
    elif isinstance(request, OffsetCommitRequest):
        _commit(cluster, request, reply)
    else:
        raise NotImplementedError(f"no broker answers {type(request).__name__}")


def _refusal(request: Any) -> Any:
    """The answer of a broker that is not the group's coordinator."""
    if isinstance(request, OffsetCommitRequest):
        return _committed(request, NOT_COORDINATOR)
    return SimpleNamespace(error_code=NOT_COORDINATOR, members=[])


def _find(cluster: Cluster, reply: Reply) -> None:
    node = cluster.coordinator
    error = 0 if cluster.up[node] else NOT_AVAILABLE
    found = SimpleNamespace(error_code=error, node_id=node, host="sim", port=9092 + node)
    reply(SimpleNamespace(coordinators=[found]))


def _metadata(cluster: Cluster, request: Any, reply: Reply) -> None:
    if request.topics is None or request.topics == MetadataRequest.ALL_TOPICS:
        names = sorted(cluster.topics)
    else:
        names = [topic.name for topic in request.topics]
    topics = [
        SimpleNamespace(
            name=name,
            error_code=0 if name in cluster.topics else UNKNOWN_TOPIC,
            partitions=[None] * cluster.topics.get(name, 0),
            is_internal=False,
        )
        for name in names
    ]
    reply(SimpleNamespace(topics=topics))


def _join(cluster: Cluster, request: Any, reply: Reply) -> None:
    ((protocol, subscription),) = [(each[0], each[1]) for each in request.protocols]

    def joined(response: JoinAnswer) -> None:
        members = [
            SimpleNamespace(member_id=name, group_instance_id=instance, metadata=data)
            for name, instance, data in response.members
        ]
        reply(
            SimpleNamespace(
                error_code=response.error,
                member_id=response.member_id,
                generation_id=response.generation,
                leader=response.leader,
                protocol_type=request.protocol_type if not response.error else None,
                protocol_name=protocol if not response.error else None,
                members=members,
                skip_assignment=response.skip_assignment,
            )
        )

    cluster.group.join(
        request.member_id,
        request.group_instance_id,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        subscription,
        joined,
    )


def _sync(cluster: Cluster, request: Any, reply: Reply) -> None:
    assignments = {each[0]: each[1] for each in request.assignments}
    cluster.group.sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        assignments,
        lambda error, data: reply(
            SimpleNamespace(
                error_code=error,
                assignment=data,
                protocol_type=request.protocol_type if not error else None,
                protocol_name=request.protocol_name if not error else None,
            )
        ),
    )


def _commit(cluster: Cluster, request: Any, reply: Reply) -> None:
    offsets = {
        TopicPartition(topic.name, part.partition_index): Committed(
            part.committed_offset, part.committed_metadata or "", part.committed_leader_epoch
        )
        for topic in request.topics
        for part in topic.partitions
    }
    error = cluster.group.commit(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
    )
    reply(_committed(request, error))


def _committed(request: Any, error: int) -> Any:
    topics = [
        SimpleNamespace(
            name=topic.name,
            partitions=[
                SimpleNamespace(partition_index=part.partition_index, error_code=error)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return SimpleNamespace(topics=topics, error_code=error)


def _fetch(cluster: Cluster, broker: int, request: Any, reply: Reply) -> None:
    if broker != cluster.coordinator:
        group = SimpleNamespace(error_code=NOT_COORDINATOR, topics=[])
        reply(SimpleNamespace(API_VERSION=8, groups=[group]))
        return
    (group_request,) = request.groups
    topics = []
    for topic in group_request.topics:
        places = [TopicPartition(topic.name, number) for number in topic.partition_indexes]
        found = cluster.group.fetch(places, stable=bool(request.require_stable))
        topics.append(
            SimpleNamespace(
                name=topic.name,
                partitions=[_position(place, found[place]) for place in places],
            )
        )
    reply(SimpleNamespace(API_VERSION=8, groups=[SimpleNamespace(error_code=0, topics=topics)]))


def _position(place: TopicPartition, found: Committed | int) -> Any:
    position = found if isinstance(found, Committed) else Committed(-1, "", -1)
    return SimpleNamespace(
        partition_index=place.partition,
        error_code=0 if isinstance(found, Committed) else found,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        metadata=position.metadata,
    )
