"""Resetting an application: its offsets, internal topics and local state.

The semantics follow Kafka's `StreamsResetter`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, StreamsError
from millstream.kafka.cluster.group_admin import GroupAdmin, GroupMemberInfo, remove_members
from millstream.record import TopicPartition
from millstream.runtime.start.topology_topics import topology_topics
from millstream.state.directories.state_directory import StateDirectory, resolve_state_dir
from millstream.tools.application_topics import INTERNAL, all_partitions, topics_of
from millstream.topology.physical.topology import Topology

_ENDS: Final = (
    "-changelog",
    "-repartition",
    "-subscription-registration-topic",
    "-subscription-response-topic",
)
_FOREIGN_KEY: Final = re.compile(
    r".+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)


@dataclass(frozen=True)
class OffsetTarget:
    kind: Literal["earliest", "latest", "offset", "shift", "time", "file"]
    #: The offset, the shift, or the time in milliseconds since the epoch.
    number: int = 0
    #: The offsets from a file.
    plan: Mapping[TopicPartition, int] | None = None


EARLIEST = OffsetTarget("earliest")
LATEST = OffsetTarget("latest")


def target_offset(
    target: OffsetTarget,
    place: TopicPartition,
    begin: int,
    end: int,
    committed: int | None,
    at_time: int | None,
) -> int:
    """Return the new offset of a partition, within the range of existing offsets.

    Without a committed offset, a shift starts at the end, as in Kafka's tool. `at_time` is the
    first offset at or after the requested time; None if there is none.
    """
    match target.kind:
        case "earliest":
            return begin
        case "latest":
            return end
        case "time":
            # Follows Kafka's tool: the end if there is no such record.
            return end if at_time is None else at_time
        case "offset":
            offset = target.number
        case "shift":
            offset = (end if committed is None else committed) + target.number
        case "file":
            assert target.plan is not None
            offset = target.plan[place]
    return min(max(offset, begin), end)


def check_complete(target: OffsetTarget, places: Collection[TopicPartition]) -> None:
    """Raise ConfigError if a file does not contain all partitions."""
    missing = sorted(set(places) - (target.plan or {}).keys()) if target.kind == "file" else []
    if missing:
        named = ", ".join(f"{place.topic},{place.partition}" for place in missing[:5])
        raise ConfigError(
            f"The file of offsets has no line for {len(missing)} partitions of the input topics: "
            f"{named}{', …' if len(missing) > 5 else ''}. Add TOPIC,PARTITION,OFFSET for each."
        )


def read_plan(file: Path) -> dict[TopicPartition, int]:
    """Read a file with a line TOPIC,PARTITION,OFFSET for each partition.

    Raises ConfigError if the file cannot be read, is empty, or has an invalid line.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    plan: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise ConfigError(f"{file}, line {number}: {line!r} is not TOPIC,PARTITION,OFFSET.")
        plan[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    if not plan:
        raise ConfigError(f"{file} is empty: write a line TOPIC,PARTITION,OFFSET per partition.")
    return plan


class InternalTopics(NamedTuple):
    """The internal topics of an application, and topics with similar names."""

    own: list[str]
    #: Topics that begin with the longer id of another application, with that id.
    others: dict[str, str]
    #: Topics that are named like internal topics, but are not in the topology.
    unknown: list[str]


def looks_internal(topic: str) -> bool:
    """Return whether a topic is named like an internal topic of Kafka Streams."""
    return topic.endswith(_ENDS) or _FOREIGN_KEY.fullmatch(topic) is not None


def internal_topics(
    application_id: str,
    topics: Iterable[str],
    *,
    user_topics: Collection[str],
    groups: Iterable[str],
    known: Collection[str] | None = None,
) -> InternalTopics:
    """Return the internal topics of an application.

    With a topology, these are exactly its internal topics, because a name alone proves nothing.
    Without one, as in Kafka's tool, these are the topics that begin with the application's id and
    are named like internal topics, unless the user has named them as input. Unlike in Kafka's tool,
    topics that begin with the longer id of another group, such as `shop-eu` next to `shop`, belong
    to that group. `known` are the internal topics of the topology; None without a topology.
    """
    longer = [group for group in groups if group.startswith(f"{application_id}-")]
    found = InternalTopics([], {}, [])
    for topic in sorted(topics):
        if topic in user_topics:
            continue
        if known is not None and topic in known:
            found.own.append(topic)
        elif topic.startswith(f"{application_id}-") and looks_internal(topic):
            owner = next((each for each in longer if topic.startswith(f"{each}-")), None)
            if owner is not None:
                found.others[topic] = owner
            elif known is None:
                found.own.append(topic)
            else:
                found.unknown.append(topic)
    return found


class OffsetChange(NamedTuple):
    """The committed and new offsets of a partition, and its first and end offsets."""

    place: TopicPartition
    committed: int | None
    offset: int
    begin: int
    end: int


@dataclass(frozen=True)
class ResetRequest:
    #: Topics that other programs write; their offsets are set to the target.
    input_topics: tuple[str, ...]
    #: Topics that the application writes and reads; their content is skipped, because it will be
    #: written again.
    intermediate_topics: tuple[str, ...]
    target: OffsetTarget
    #: The internal topics to delete; None for all.
    internal_topics: tuple[str, ...] | None = None
    #: The internal topics of the topology; None without a topology.
    known: Collection[str] | None = None
    #: Other topics of the user, which are never deleted.
    user_topics: Collection[str] = ()
    #: Whether to delete the local state on this machine, too.
    with_state: bool = True


def reset_request(
    topology: Topology,
    config: StreamsConfig,
    matching: Callable[[re.Pattern[str]], Iterable[str]],
    target: OffsetTarget,
    *,
    inputs: tuple[str, ...] | None = None,
    intermediate: tuple[str, ...] | None = None,
    internal: tuple[str, ...] | None = None,
) -> ResetRequest:
    """Create the request for an application.

    By default, input and intermediate topics are those of the topology. `internal` are the internal
    topics to delete; None for all.
    """
    topics = topology_topics(topology, config)
    patterns = [pattern for group in topics.groups for pattern in group.source_patterns]
    if patterns:
        topics = topics.with_matches(topic for each in patterns for topic in matching(each))
    uses = topics_of(topology, config)
    # A topic with any external role belongs to the user.
    known = {use.name for use in uses if INTERNAL.issuperset(use.roles)}
    users = {use.name for use in uses} - known
    written = {topic for group in topics.groups for topic in group.sink_topics}
    # A pattern may match internal topics of the application.
    read = sorted(topics.external_source_topics - known)
    users.update(read)
    if inputs is None:
        inputs = tuple(topic for topic in read if topic not in {*written, *(intermediate or ())})
    if intermediate is None:
        intermediate = tuple(topic for topic in read if topic in written and topic not in inputs)
    return ResetRequest(inputs, intermediate, target, internal, known, users)


@dataclass(frozen=True)
class ResetPlan:
    application_id: str
    #: The members of the group, which prevent the reset.
    members: tuple[GroupMemberInfo, ...]
    offsets: tuple[OffsetChange, ...]
    #: The internal topics to delete.
    deleted: tuple[str, ...]
    #: Topics that look internal but belong to another application, with its id.
    kept: dict[str, str]
    #: Topics that look internal but are not in the topology; kept unless the user names them.
    unknown: tuple[str, ...]
    #: Topics that the user named but that do not exist.
    not_found: tuple[str, ...]
    #: The local state directory to delete, if it exists.
    state: Path | None
    #: The folder of DataFrame checkpoints to delete, if it is a separate folder that can be
    #: accessed as a path.
    checkpoints: Path | None = None


def plan_reset(admin: GroupAdmin, config: StreamsConfig, request: ResetRequest) -> ResetPlan:
    """Plan a reset without changing anything.

    Raises ConfigError if a topic to delete is not internal, or a file does not contain all
    partitions; BrokerUnavailableError if the cluster does not respond.
    """
    application_id = config.application_id
    every = admin.topics_matching(".*")
    named = (*request.input_topics, *request.intermediate_topics)
    internal = internal_topics(
        application_id,
        every,
        user_topics={*named, *request.user_topics},
        groups=admin.groups(),
        known=request.known,
    )
    deleted = _deleted(request.internal_topics, internal)
    existing = set(every)
    inputs = [topic for topic in request.input_topics if topic in existing]
    intermediate = [topic for topic in request.intermediate_topics if topic in existing]
    return ResetPlan(
        application_id,
        tuple(admin.members(application_id)),
        (
            *_changes(admin, application_id, inputs, request.target),
            *_changes(admin, application_id, intermediate, LATEST),
        ),
        tuple(deleted),
        internal.others,
        tuple(topic for topic in internal.unknown if topic not in deleted),
        tuple(dict.fromkeys(topic for topic in named if topic not in existing)),
        _state(config) if request.with_state else None,
        _checkpoints(config) if request.with_state else None,
    )


def execute(admin: GroupAdmin, config: StreamsConfig, plan: ResetPlan, *, force: bool) -> None:
    """Execute a plan: members, offsets, topics, local state, in this order.

    `force` removes members from the group. Raises StreamsError if the group has members; LockError
    if an instance on this machine uses the local state. After a failed step, no further steps are
    executed.
    """
    if plan.members and not force:
        raise refusal(plan)
    state = None if plan.state is None else StateDirectory(config.state_dir, plan.application_id)
    with ExitStack() as unlocking:
        if state is not None:
            # First, so that nothing changes if an instance is running on this machine.
            state.lock_application()
            unlocking.callback(state.unlock_application)
        if plan.members:
            remove_members(config, plan.members)
        admin.commit(plan.application_id, {each.place: each.offset for each in plan.offsets})
        # If the group has members, the cluster rejects offset commits, but not the deletion of
        # topics. If there were no offsets to commit, nothing has been rejected yet.
        joined = tuple(admin.members(plan.application_id))
        if joined:
            raise refusal(replace(plan, members=joined))
        admin.delete_topics(plan.deleted)
        if state is not None:
            state.clean_up()
        if plan.checkpoints is not None:
            # Old checkpoints refer to offsets of topics that are recreated.
            shutil.rmtree(plan.checkpoints)


def refusal(plan: ResetPlan) -> StreamsError:
    """Return the error for a group that has members."""
    listed = ", ".join(f"{each.client_id} on {each.host}" for each in plan.members[:5])
    count, more = len(plan.members), len(plan.members) - 5
    return StreamsError(
        f"Group {plan.application_id!r} has {count} member{'' if count == 1 else 's'}: {listed}"
        f"{f' and {more} more' if more > 0 else ''}. Stop all instances of the application before "
        "you reset it. Leftover members of crashed instances are removed after their session "
        "timeout, or with --force, which must not be used while any instance is running."
    )


def _deleted(chosen: Iterable[str] | None, internal: InternalTopics) -> list[str]:
    if chosen is None:
        return internal.own
    chosen = list(chosen)
    wrong = [topic for topic in chosen if topic not in {*internal.own, *internal.unknown}]
    if wrong:
        raise ConfigError(
            f"Not internal topics of the application: {', '.join(wrong)}. Omit --internal-topics "
            "to list the topics that can be deleted."
        )
    return chosen


def _changes(
    admin: GroupAdmin, group: str, topics: Iterable[str], target: OffsetTarget
) -> list[OffsetChange]:
    places = all_partitions(admin.partition_counts(topics))
    check_complete(target, places)
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    committed = admin.committed_offsets(group, places)
    at = admin.offsets_at(places, target.number) if target.kind == "time" else {}
    return [
        OffsetChange(
            place,
            committed.get(place),
            target_offset(
                target, place, begins[place], ends[place], committed.get(place), at.get(place)
            ),
            begins[place],
            ends[place],
        )
        for place in places
    ]


def _state(config: StreamsConfig) -> Path | None:
    folder = resolve_state_dir(config.state_dir) / config.application_id
    return folder if folder.is_dir() else None


def _checkpoints(config: StreamsConfig) -> Path | None:
    place = config.dataframe_checkpoint_dir
    if place is None:
        return None  # The checkpoints are part of the local state directory.
    folder = Path(place.removeprefix("file://")) / config.application_id
    return folder if folder.is_dir() else None
