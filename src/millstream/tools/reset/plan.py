"""What a reset would do, and doing it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from millstream.config import StreamsConfig
from millstream.errors import ConfigError, StreamsError
from millstream.kafka.cluster.group_admin import GroupAdmin, Member
from millstream.kafka.cluster.group_members import remove_members
from millstream.record import TopicPartition
from millstream.state.directories.state_directory import StateDirectory
from millstream.tools.reset.internal import Internal, internal_topics
from millstream.tools.reset.targets import LATEST, Target, check_complete, target_offset
from millstream.tools.reset.wanted import Wanted


class OffsetChange(NamedTuple):
    """A partition: what the group has committed, what it would be, and what the topic has."""

    place: TopicPartition
    committed: int | None
    offset: int
    begin: int
    end: int


@dataclass(frozen=True)
class ResetPlan:
    """What a reset would do.

    Args:
        application_id: whose.
        members: who is in its group, and in the way.
        offsets: of the input and intermediate topics.
        deleted: the internal topics that go.
        kept: topics that look like internal ones of it and are another application's: the topic,
            and that application's id.
        unknown: topics that look like internal ones of it and that its topology does not have;
            they stay as well, unless they are named.
        not_found: topics that were named and do not exist.
        state: the folder of local state on this machine that goes, if there is one.
        checkpoints: the folder that goes of what DataFrame functions remember, if that is another
            and can be reached as a folder.
    """

    application_id: str
    members: tuple[Member, ...]
    offsets: tuple[OffsetChange, ...]
    deleted: tuple[str, ...]
    kept: dict[str, str]
    unknown: tuple[str, ...]
    not_found: tuple[str, ...]
    state: Path | None
    checkpoints: Path | None = None


def plan_reset(admin: GroupAdmin, config: StreamsConfig, wanted: Wanted) -> ResetPlan:
    """Ask the cluster what a reset would do. Changes nothing.

    Raises:
        ConfigError: a topic is to be deleted that is no internal one; a file leaves partitions out.
        BrokerUnavailableError: the cluster does not answer.
    """
    application_id = config.application_id
    every = admin.topics_matching(".*")
    named = (*wanted.input_topics, *wanted.intermediate_topics)
    internal = internal_topics(
        application_id,
        every,
        user_topics={*named, *wanted.user_topics},
        groups=admin.groups(),
        known=wanted.known,
    )
    deleted = _deleted(wanted.internal_topics, internal)
    there = set(every)
    inputs = [topic for topic in wanted.input_topics if topic in there]
    passed = [topic for topic in wanted.intermediate_topics if topic in there]
    return ResetPlan(
        application_id,
        tuple(admin.members(application_id)),
        (
            *_changes(admin, application_id, inputs, wanted.target),
            *_changes(admin, application_id, passed, LATEST),
        ),
        tuple(deleted),
        internal.others,
        tuple(topic for topic in internal.unknown if topic not in deleted),
        tuple(dict.fromkeys(topic for topic in named if topic not in there)),
        _state(config) if wanted.with_state else None,
        _checkpoints(config) if wanted.with_state else None,
    )


def execute(admin: GroupAdmin, config: StreamsConfig, plan: ResetPlan, *, force: bool) -> None:
    """Do what was planned: members, offsets, topics, local state, in this order.

    Args:
        admin: of the cluster.
        config: of the application.
        plan: what to do.
        force: whether members are put out of the group.

    Raises:
        StreamsError: somebody is in the group; or a step fails, and those after it are not done.
        LockError: an instance on this machine uses the local state.
    """
    if plan.members and not force:
        raise refusal(plan)
    state = None if plan.state is None else StateDirectory(config.state_dir, plan.application_id)
    if state is not None:
        # First, so that nothing is half done where an instance runs on this machine.
        state.lock_application()
    try:
        if plan.members:
            remove_members(config, plan.members)
        admin.commit(plan.application_id, {each.place: each.offset for each in plan.offsets})
        # The cluster refuses offsets while somebody is there, but not topics; and there may have
        # been no offsets.
        come = tuple(admin.members(plan.application_id))
        if come:
            raise refusal(replace(plan, members=come))
        admin.delete_topics(plan.deleted)
        if state is not None:
            state.clean_up()
        if plan.checkpoints is not None:
            # Queries would look for records in topics that are made anew.
            shutil.rmtree(plan.checkpoints)
    finally:
        if state is not None:
            state.unlock_application()


def refusal(plan: ResetPlan) -> StreamsError:
    """Why nothing is reset while somebody is in the group."""
    listed = ", ".join(f"{each.client_id} on {each.host}" for each in plan.members[:5])
    count, more = len(plan.members), len(plan.members) - 5
    return StreamsError(
        f"Group {plan.application_id!r} has {count} member{'' if count == 1 else 's'}: {listed}"
        f"{f' and {more} more' if more > 0 else ''}. Stop all instances of the application before "
        "it is reset. Members that are left over from instances which died go when their session "
        "timeout has passed, or with --force, which must not be used while any instance runs."
    )


def _deleted(chosen: Iterable[str] | None, internal: Internal) -> list[str]:
    if chosen is None:
        return internal.own
    chosen = list(chosen)
    wrong = [topic for topic in chosen if topic not in {*internal.own, *internal.unknown}]
    if wrong:
        raise ConfigError(
            f"No internal topics of the application: {', '.join(wrong)}. Leave --internal-topics "
            "out to see a list of those that can be deleted."
        )
    return chosen


def _changes(
    admin: GroupAdmin, group: str, topics: Iterable[str], target: Target
) -> list[OffsetChange]:
    counts = admin.partition_counts(topics)
    places = [
        TopicPartition(topic, partition)
        for topic, count in counts.items()
        for partition in range(count)
    ]
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
    folder = Path(config.state_dir) / config.application_id
    return folder if folder.is_dir() else None


def _checkpoints(config: StreamsConfig) -> Path | None:
    place = config.dataframe_checkpoint_dir
    if place is None:
        # In the folder of local state.
        return None
    folder = Path(place.removeprefix("file://")) / config.application_id
    return folder if folder.is_dir() else None
