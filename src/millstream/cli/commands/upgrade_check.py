"""`millstream upgrade-check old.py new.py`: show what a new version would break."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import wrap
from typing import Final

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
    console,
    print_json,
    print_message,
    styled,
)
from millstream.cli.programs.facts_subprocess import facts_in_subprocess
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.tools.topology_facts import TopologyFacts
from millstream.tools.upgrade.compare import UpgradeComparison, compare
from millstream.tools.upgrade.findings import FindingLevel, UpgradeFinding

_WIDTH: Final = 100
_INDENT: Final = 9
_STYLES: Final = {
    FindingLevel.STAYS: GOOD,
    FindingLevel.CHANGES: WARNING,
    FindingLevel.UNKNOWN: WARNING,
    FindingLevel.BREAKS: BAD,
}


@click.command("upgrade-check")
@click.argument("old", metavar="OLD[:NAME]", type=click.Path())
@click.argument("new", metavar="NEW[:NAME]", type=click.Path())
@cluster_options
@click.option("--all", "everything", is_flag=True, help="Also show what stays the same.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    old: str,
    new: str,
    cluster: ClusterOptions,
    everything: bool,
    as_json: bool,
) -> int:
    """Show what a new version of a program would break.

    Compares two versions, and shows which stores, topics and partition counts stay the same, change
    or break, and what to do. Stores and topics are identified only by their names, and their bytes
    do not identify the serde that wrote them. OLD and NEW are programs in any folder, or files
    written by `millstream describe --facts`. With --bootstrap-servers, also checks the topics of
    the cluster. The exit code is 1 if something breaks.
    """
    before, after = _facts(old), _facts(new)
    counts, named = None, None
    if not cluster.is_empty:
        config = settings_from(
            cluster, None, default_application_id=after.application_id or before.application_id
        )
        named = config.application_id
        with connected_admin(ClusterAdmin, config) as admin:
            counts = admin.partition_counts(admin.topics_matching(".*"))
    comparison = compare(before, after, counts, named)
    if as_json:
        print_json(_document(comparison))
    else:
        _show(comparison, everything)
    return 1 if comparison.breaks else 0


def _facts(program: str) -> TopologyFacts:
    """Return the facts of a program or of a file."""
    path = Path(program)
    if path.suffix == ".json" and path.is_file():
        return TopologyFacts.from_json(path.read_bytes(), program)
    return facts_in_subprocess(program)


def _show(comparison: UpgradeComparison, everything: bool) -> None:
    for finding in comparison.findings:
        if everything or finding.level is not FindingLevel.STAYS:
            _print_finding(finding)
    counted = Counter(each.level for each in comparison.findings)
    print_message(
        ", ".join(f"{counted[level]} {_verb(level, counted[level])}" for level in FindingLevel),
        FAINT,
    )
    if comparison.breaks:
        print_message("Do not start the new version until these problems are solved.", BAD)
        return
    if not comparison.is_sure:
        print_message(
            "Unknown items were not compared: check them before you start the new version.", WARNING
        )
    if comparison.can_roll:
        print_message(
            "The new version can replace the old one instance by instance (rolling upgrade).", GOOD
        )
    else:
        print_message(
            "Close all instances of the old version before you start the new one: their topologies "
            "differ, and all members of a group must have the same topology.",
            WARNING,
        )


def _print_finding(finding: UpgradeFinding) -> None:
    """Write a finding in a few lines: the object, the difference, and the remedy."""
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


def _verb(level: FindingLevel, number: int) -> str:
    return level.value if number == 1 else level.value.removesuffix("s")


def _document(comparison: UpgradeComparison) -> dict[str, object]:
    return {
        "breaks": comparison.breaks,
        "sure": comparison.is_sure,
        "rolling": comparison.can_roll and not comparison.breaks,
        "findings": [{**each._asdict(), "level": each.level.value} for each in comparison.findings],
    }
