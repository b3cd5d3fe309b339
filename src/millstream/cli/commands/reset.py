"""`millstream reset`: Kafka's application reset tool, dry unless told to do it."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from millstream.cli.cluster import (
    Given,
    application_id_option,
    asking,
    cluster_options,
    settings_from,
)
from millstream.cli.output import BAD, FAINT, GOOD, WARNING, print_json, print_table, printable, say
from millstream.cli.programs.topologies import found_in
from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.tools.reset.plan import ResetPlan, execute, plan_reset, refusal
from millstream.tools.reset.targets import EARLIEST, LATEST, Target, read_plan
from millstream.tools.reset.wanted import Wanted, wanted_of
from millstream.tools.times import ago_ms, time_ms
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
@application_id_option
@cluster_options
@click.option(
    "--input-topics",
    type=_listed,
    metavar="TOPIC,…",
    help="Topics to read anew; by default those that the program reads and does not write.",
)
@click.option(
    "--intermediate-topics",
    type=_listed,
    metavar="TOPIC,…",
    help="Topics whose present content is skipped; by default those of others that the program "
    "reads and writes.",
)
@click.option(
    "--internal-topics",
    type=_listed,
    metavar="TOPIC,…",
    help="Delete only these of the internal topics; also those that the program does not have any "
    "more.",
)
@click.option("--to-earliest", is_flag=True, help="Read from the beginning: the default.")
@click.option("--to-latest", is_flag=True, help="Read only what comes from now on.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Read from an offset.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Read from a time, as 2026-11-23T04:30:00.000: UTC unless it has a zone.",
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Read from so long before now.")
@click.option(
    "--shift-by",
    type=int,
    metavar="N",
    help="Read from so many records after, or before (-N), what is committed.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False),
    help="Read from the offsets of a file with lines TOPIC,PARTITION,OFFSET.",
)
@click.option("--keep-state", is_flag=True, help="Leave the local state on this machine alone.")
@click.option("--execute", "really", is_flag=True, help="Do it, instead of showing it.")
@click.option("--dry-run", is_flag=True, help="Show it: the default.")
@click.option("--force", is_flag=True, help="Put members out of the group that are left over.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    program: str | None,
    application_id: str | None,
    bootstrap_servers: str | None,
    config_file: str | None,
    input_topics: tuple[str, ...] | None,
    intermediate_topics: tuple[str, ...] | None,
    internal_topics: tuple[str, ...] | None,
    keep_state: bool,
    really: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Let an application begin anew, as Kafka's reset tool does.

    Sets the offsets of its input topics, skips what is in its intermediate topics, and deletes its
    internal topics and its local state on this machine. Shows what it would do, and does it with
    --execute. All instances must be stopped: it refuses while members are in the group. What other
    machines have in their state directories has to be deleted there (clean_up()).

    With PROGRAM, topics, application id and cluster are those of the program; without it, say
    --application-id, --bootstrap-servers and --input-topics. The exit code is 1 if a topic does not
    exist.
    """
    if really and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    target = _target(chosen)
    given = Given(bootstrap_servers, config_file, application_id)
    topology: Topology | None = None
    known: StreamsConfig | None = None
    if program is not None:
        _, topology, known = found_in(program)
    config = settings_from(given, known)
    with asking(GroupAdmin, config) as admin:
        if topology is None:
            wanted = Wanted(input_topics or (), intermediate_topics or (), target, internal_topics)
        else:
            wanted = wanted_of(
                topology,
                config,
                admin.topics_matching,
                target,
                inputs=input_topics,
                passed=intermediate_topics,
                internal=internal_topics,
            )
        # Without the program's settings nobody knows where its state is.
        with_state = known is not None and not keep_state
        plan = plan_reset(admin, config, replace(wanted, with_state=with_state))
        if really:
            execute(admin, config, plan, force=force)
    _show(plan, as_json, done=really)
    if not really and plan.members and not force:
        raise refusal(plan)
    return 1 if plan.not_found else 0


def _target(chosen: dict[str, Any]) -> Target:
    """What the options say of where to read on; earliest if they say nothing."""
    given = [name for name in _TARGETS if chosen[name] not in (None, False)]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{names} exclude each other.")
    try:
        match given:
            case ["to_latest"]:
                return LATEST
            case ["to_offset"]:
                return Target("offset", chosen["to_offset"])
            case ["shift_by"]:
                return Target("shift", chosen["shift_by"])
            case ["to_datetime"]:
                return _from_time(time_ms(chosen["to_datetime"]))
            case ["by_duration"]:
                return _from_time(ago_ms(chosen["by_duration"], int(time.time() * 1_000)))
            case ["from_file"]:
                return Target("file", plan=read_plan(Path(chosen["from_file"])))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return EARLIEST


def _from_time(since_ms: int) -> Target:
    """Kafka takes negative times for something else, as the end; and no record has one."""
    return Target("time", max(0, since_ms))


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
        say(f"{topic} is kept: it seems to be of application {owner}", WARNING)
    for topic in plan.unknown:
        say(
            f"{topic} is kept: it is called like an internal topic, and the program has none of "
            "this name. If it is one of an older version, name it with --internal-topics",
            WARNING,
        )
    if plan.state is not None:
        _list("Local state " + ("deleted" if done else "to be deleted"), [str(plan.state)])
    if plan.checkpoints is not None:
        what = "Checkpoints of DataFrame functions "
        _list(what + ("deleted" if done else "to be deleted"), [str(plan.checkpoints)])
    for topic in plan.not_found:
        say(f"there is no topic {topic}", BAD)
    if not (plan.offsets or plan.deleted or plan.state or plan.checkpoints):
        say(f"There is nothing of application {plan.application_id} to reset: is that its id?")
    elif done:
        say("Done. Delete the state directories on other machines before you start again.", GOOD)
    else:
        say("Nothing was changed. Add --execute to do it.", FAINT)


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
