"""`millstream reset`: Kafka's application reset tool; a dry run by default."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from millstream.cli.cluster_options import (
    ClusterOptions,
    cluster_options,
    connected_admin,
    settings_from,
)
from millstream.cli.output import (
    BAD,
    FAINT,
    GOOD,
    WARNING,
    print_json,
    print_message,
    print_table,
    printable,
)
from millstream.cli.programs.topologies import load_program
from millstream.config.streams_config import StreamsConfig
from millstream.durations import ago_ms, time_ms
from millstream.errors import ConfigError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.tools.application_reset import (
    EARLIEST,
    LATEST,
    OffsetTarget,
    ResetPlan,
    ResetRequest,
    execute,
    plan_reset,
    read_plan,
    refusal,
    reset_request,
)
from millstream.topology.physical.topology import Topology

_TARGETS = (
    "to_earliest",
    "to_latest",
    "to_offset",
    "to_datetime",
    "by_duration",
    "shift_by",
    "from_file",
)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


@click.command("reset")
@click.argument("program", metavar="[PROGRAM[:NAME]]", type=click.Path(), required=False)
@cluster_options
@click.option(
    "--input-topics",
    type=_listed,
    metavar="TOPIC,…",
    help="Topics to read again; by default those that the program reads and does not write.",
)
@click.option(
    "--intermediate-topics",
    type=_listed,
    metavar="TOPIC,…",
    help="Topics whose current content is skipped; by default those that the program reads and "
    "writes, except internal ones.",
)
@click.option(
    "--internal-topics",
    type=_listed,
    metavar="TOPIC,…",
    help="Delete only these internal topics. May include topics of older versions of the program.",
)
@click.option("--to-earliest", is_flag=True, help="Read from the beginning (the default).")
@click.option("--to-latest", is_flag=True, help="Read new records only.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Read from an offset.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Read from a time such as 2026-11-23T04:30:00.000, in UTC unless it has a time zone.",
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Read from this duration before now.")
@click.option(
    "--shift-by",
    type=int,
    metavar="N",
    help="Read from N records after the committed offset, or before it if N is negative.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    help="Read from the offsets in a file with lines of the form TOPIC,PARTITION,OFFSET.",
)
@click.option("--keep-state", is_flag=True, help="Keep the local state on this machine.")
@click.option(
    "--execute", "confirmed", is_flag=True, help="Make the changes instead of only showing them."
)
@click.option("--dry-run", is_flag=True, help="Only show the changes (the default).")
@click.option("--force", is_flag=True, help="Remove leftover members from the group.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    program: str | None,
    cluster: ClusterOptions,
    input_topics: tuple[str, ...] | None,
    intermediate_topics: tuple[str, ...] | None,
    internal_topics: tuple[str, ...] | None,
    keep_state: bool,
    confirmed: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Reset an application, like Kafka's reset tool.

    Sets the offsets of its input topics, skips the content of its intermediate topics, and deletes
    its internal topics and its local state on this machine. Only shows the changes unless --execute
    is given. All instances must be stopped: the reset is refused while the group has members.
    Delete the state directories on other machines separately, with clean_up().

    With PROGRAM, the topics, application id and cluster are those of the program. Without it, give
    --application-id, --bootstrap-servers and --input-topics. The exit code is 1 if a topic does not
    exist.
    """
    if confirmed and dry_run:
        raise click.UsageError("--execute and --dry-run cannot be used together.")
    target = _target(chosen)
    topology: Topology | None = None
    known: StreamsConfig | None = None
    if program is not None:
        _, topology, known = load_program(program)
    config = settings_from(cluster, known)
    with connected_admin(GroupAdmin, config) as admin:
        if topology is None:
            request = ResetRequest(
                input_topics or (), intermediate_topics or (), target, internal_topics
            )
        else:
            request = reset_request(
                topology,
                config,
                admin.topics_matching,
                target,
                inputs=input_topics,
                intermediate=intermediate_topics,
                internal=internal_topics,
            )
        # The state directory is only known from the program's settings.
        with_state = known is not None and not keep_state
        plan = plan_reset(admin, config, replace(request, with_state=with_state))
        if confirmed:
            execute(admin, config, plan, force=force)
    _show(plan, as_json, done=confirmed)
    if not confirmed and plan.members and not force:
        raise refusal(plan)
    return 1 if plan.not_found else 0


def _target(chosen: dict[str, Any]) -> OffsetTarget:
    """Return the target that the options specify; earliest by default."""
    given = [name for name in _TARGETS if chosen[name] not in (None, False)]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} cannot be used together.")
    try:
        match given:
            case ["to_latest"]:
                return LATEST
            case ["to_offset"]:
                return OffsetTarget("offset", chosen["to_offset"])
            case ["shift_by"]:
                return OffsetTarget("shift", chosen["shift_by"])
            case ["to_datetime"]:
                return _from_time(time_ms(chosen["to_datetime"]))
            case ["by_duration"]:
                return _from_time(ago_ms(chosen["by_duration"], int(time.time() * 1_000)))
            case ["from_file"]:
                return OffsetTarget("file", plan=read_plan(Path(chosen["from_file"])))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return EARLIEST


def _from_time(since_ms: int) -> OffsetTarget:
    """Return a target time of at least 0.

    Negative times have a special meaning in Kafka.
    """
    return OffsetTarget("time", max(0, since_ms))


def _show(plan: ResetPlan, as_json: bool, *, done: bool) -> None:
    if as_json:
        print_json(_document(plan, done=done))
        return
    if plan.offsets:
        print_table(
            ["topic", "partition", "committed", "would be" if not done else "is", "begin", "end"],
            [
                (
                    each.place.topic,
                    each.place.partition,
                    each.committed,
                    each.offset,
                    each.begin,
                    each.end,
                )
                for each in plan.offsets
            ],
            title=f"Offsets of group {plan.application_id}",
        )
    _list("Internal topics " + ("deleted" if done else "to be deleted"), plan.deleted)
    for topic, owner in plan.kept.items():
        print_message(f"{topic} is kept: it seems to belong to application {owner}", WARNING)
    for topic in plan.unknown:
        print_message(
            f"{topic} is kept: it is named like an internal topic, but the program has no such "
            "topic. If it belongs to an older version, add it with --internal-topics",
            WARNING,
        )
    if plan.state is not None:
        _list("Local state " + ("deleted" if done else "to be deleted"), [str(plan.state)])
    if plan.checkpoints is not None:
        title = "Checkpoints of DataFrame functions "
        _list(title + ("deleted" if done else "to be deleted"), [str(plan.checkpoints)])
    for topic in plan.not_found:
        print_message(f"topic {topic} does not exist", BAD)
    if not (plan.offsets or plan.deleted or plan.state or plan.checkpoints):
        print_message(f"Nothing to reset for application {plan.application_id}. Check the id.")
    elif done:
        print_message(
            "Done. Delete the state directories on other machines before you restart anything.",
            GOOD,
        )
    else:
        print_message("Nothing was changed. Add --execute to make the changes.", FAINT)


def _list(title: str, lines: Collection[str]) -> None:
    if lines:
        click.echo("\n" + title)
        for line in lines:
            click.echo(f"  {printable(line)}")


def _document(plan: ResetPlan, *, done: bool) -> dict[str, Any]:
    return {
        "application_id": plan.application_id,
        "executed": done,
        "members": [
            {"client_id": each.client_id, "host": each.host, "member_id": each.member_id}
            for each in plan.members
        ],
        "offsets": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "committed": each.committed,
                "offset": each.offset,
                "begin": each.begin,
                "end": each.end,
            }
            for each in plan.offsets
        ],
        "deleted_topics": list(plan.deleted),
        "kept_topics": plan.kept,
        "unknown_topics": list(plan.unknown),
        "topics_not_found": list(plan.not_found),
        "local_state": None if plan.state is None else str(plan.state),
        "checkpoints": None if plan.checkpoints is None else str(plan.checkpoints),
    }
