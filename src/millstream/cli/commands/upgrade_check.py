"""`millstream upgrade-check old.py new.py`: what a new version of a program finds again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import wrap
from typing import Final

import click

from millstream.cli.cluster import (
    Given,
    application_id_option,
    asking,
    cluster_options,
    settings_from,
)
from millstream.cli.output import (
    BAD,
    FAINT,
    GOOD,
    WARNING,
    console,
    print_json,
    say,
    styled,
)
from millstream.cli.programs.elsewhere import facts_elsewhere
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.tools.facts import TopologyFacts
from millstream.tools.upgrade.compare import Comparison, compare
from millstream.tools.upgrade.findings import Finding, Level

_WIDTH: Final = 100
_INDENT: Final = 9
_STYLES: Final = {
    Level.STAYS: GOOD,
    Level.CHANGES: WARNING,
    Level.UNKNOWN: WARNING,
    Level.BREAKS: BAD,
}


@click.command("upgrade-check")
@click.argument("old", metavar="OLD[:NAME]", type=click.Path())
@click.argument("new", metavar="NEW[:NAME]", type=click.Path())
@application_id_option
@cluster_options
@click.option("--all", "everything", is_flag=True, help="Show what stays as it is as well.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    old: str,
    new: str,
    application_id: str | None,
    bootstrap_servers: str | None,
    config_file: str | None,
    everything: bool,
    as_json: bool,
) -> int:
    """Say what a new version of a program would break.

    Compares two versions: which stores, topics and partition counts stay, which change, which
    break, and what to do. State and topics are found again by their names only, and bytes do not
    tell what wrote them. OLD and NEW are programs, in whatever folders, or files that
    `millstream describe --facts` has written. With --bootstrap-servers the topics of the cluster
    are looked at, too. The exit code is 1 if something breaks.
    """
    before, after = _facts(old), _facts(new)
    given = Given(bootstrap_servers, config_file, application_id)
    counts, named = None, None
    if not given.is_empty:
        config = settings_from(given, None, otherwise=after.application_id or before.application_id)
        named = config.application_id
        with asking(ClusterAdmin, config) as admin:
            counts = admin.partition_counts(admin.topics_matching(".*"))
    comparison = compare(before, after, counts, named)
    if as_json:
        print_json(_document(comparison))
    else:
        _show(comparison, everything)
    return 1 if comparison.breaks else 0


def _facts(program: str) -> TopologyFacts:
    """The facts of a program, or those of a file."""
    path = Path(program)
    if path.suffix == ".json" and path.is_file():
        return TopologyFacts.from_json(path.read_bytes(), program)
    return facts_elsewhere(program)


def _show(comparison: Comparison, everything: bool) -> None:
    for finding in comparison.findings:
        if everything or finding.level is not Level.STAYS:
            _tell(finding)
    counted = Counter(each.level for each in comparison.findings)
    say(", ".join(f"{counted[level]} {_verb(level, counted[level])}" for level in Level), FAINT)
    if comparison.breaks:
        say("Do not start the new version before that is settled.", BAD)
        return
    if not comparison.is_sure:
        say("What is unknown was not compared: look at it before the new version starts.", WARNING)
    if comparison.may_roll:
        say("The new version may replace the old one instance by instance.", GOOD)
    else:
        say(
            "Close all instances of the old version before the first of the new one starts: their "
            "topologies differ, and a group has one.",
            WARNING,
        )


def _tell(finding: Finding) -> None:
    """A finding in a few lines: which, what, and what to do."""
    head = styled(f"{finding.level.value:<{_INDENT}}", _STYLES[finding.level])
    head.append(f"{finding.kind} {finding.name}", "bold")
    lines = [head]
    for mark, text in (("", finding.what), ("→ ", finding.remedy)):
        if text:
            wrapped = wrap(f"{mark}{text}", _WIDTH - _INDENT, subsequent_indent=" " * len(mark))
            lines += [styled(" " * _INDENT + line, "") for line in wrapped]
    target = console()
    for line in lines:
        target.print(line, soft_wrap=True)


def _verb(level: Level, number: int) -> str:
    return level.value if number == 1 else level.value.removesuffix("s")


def _document(comparison: Comparison) -> dict[str, object]:
    return {
        "breaks": comparison.breaks,
        "sure": comparison.is_sure,
        "rolling": comparison.may_roll and not comparison.breaks,
        "findings": [{**each._asdict(), "level": each.level.value} for each in comparison.findings],
    }
