"""`millstream topics app.py`: list topics, and their state on the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import click

from millstream.cli.cluster_options import (
    ClusterOptions,
    cluster_options,
    connected_admin,
    settings_from,
)
from millstream.cli.output import BAD, GOOD, Cell, print_json, print_message, print_table, styled
from millstream.cli.programs.topologies import load_program
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.tools.application_topics import (
    TopicUse,
    all_partitions,
    partitions_to_create,
    patterns_of,
    topic_settings,
    topics_of,
)
from millstream.topology.physical.topology import Topology

#: A placeholder if no application id is given and no cluster is used.
_PLACEHOLDER_ID = "APPLICATION-ID"
#: The bootstrap servers if no cluster is used.
_NO_BROKER = "nowhere:1"


@click.command("topics")
@click.argument("program", metavar="PROGRAM[:NAME]", type=click.Path())
@cluster_options
@click.option("--offline", is_flag=True, help="Do not connect to a cluster.")
@click.option("--create", is_flag=True, help="Create missing inputs and outputs.")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Number of partitions for --create; by default that of the topics that a topic is joined "
    "with, or else that of the largest input.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Replication factor for --create; by default that of the brokers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    program: str,
    cluster: ClusterOptions,
    offline: bool,
    create: bool,
    partitions: int | None,
    replication_factor: int | None,
    as_json: bool,
) -> int:
    """List a program's topics, and their state on the cluster.

    Inputs and outputs must exist before the application starts; it creates its repartition topics
    and changelogs itself. --create creates the topics of tables with compaction. The exit code is 1
    if a topic is missing or has the wrong number of partitions. If the program has no StreamsConfig
    at module level, pass --application-id and --bootstrap-servers; otherwise, no cluster is used.
    """
    found = load_program(program)
    if offline and create:
        raise click.UsageError("--offline and --create cannot be used together.")
    connects = not offline and (found.config is not None or not cluster.is_empty)
    if create and not connects:
        raise click.UsageError("--create requires a cluster: pass --bootstrap-servers.")
    if not connects:
        cluster = cluster._replace(bootstrap_servers=_NO_BROKER)
    config = settings_from(cluster, found.config, default_application_id=_PLACEHOLDER_ID)
    if not connects:
        _show(found.topology, topics_of(found.topology, config), {}, as_json, connected=False)
        return 0
    admin_of = partial(ClusterAdmin, replication_factor=replication_factor or -1)
    with connected_admin(admin_of, config) as admin:
        uses = _topic_uses(admin, found.topology, config)
        if create:
            _create(admin, found.topology, config, uses, partitions)
            uses = _topic_uses(admin, found.topology, config)
        records = _records(admin, uses)
    _show(found.topology, uses, records, as_json, connected=True)
    return 1 if any(use.problem() for use in uses) else 0


def _topic_uses(admin: ClusterAdmin, topology: Topology, config: StreamsConfig) -> list[TopicUse]:
    names = [use.name for use in topics_of(topology, config)]
    return topics_of(topology, config, admin.partition_counts(names))


def _create(
    admin: ClusterAdmin,
    topology: Topology,
    config: StreamsConfig,
    uses: Sequence[TopicUse],
    partitions: int | None,
) -> None:
    missing = [use for use in uses if use.partitions is None and not use.is_internal]
    counts = {use.name: use.partitions for use in uses if use.partitions is not None}
    chosen = partitions_to_create(topology, config, missing, counts)
    new: list[tuple[str, int, dict[str, str]]] = [
        (use.name, partitions or chosen[use.name], topic_settings(topology, use.name))
        for use in missing
    ]
    admin.create_topics(new)
    for name, count, settings in new:
        compacted = ", compacted because it is the topic of a table" if settings else ""
        print_message(
            f"created {name} with {count} partition{'' if count == 1 else 's'}{compacted}"
        )


def _records(admin: ClusterAdmin, uses: Sequence[TopicUse]) -> dict[str, int]:
    """Return the number of offsets from beginning to end of each existing topic."""
    places = all_partitions({use.name: use.partitions or 0 for use in uses})
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    records: dict[str, int] = Counter()
    for place in places:
        records[place.topic] += ends[place] - begins[place]
    return records


def _show(
    topology: Topology,
    uses: Sequence[TopicUse],
    records: dict[str, int],
    as_json: bool,
    *,
    connected: bool,
) -> None:
    if as_json:
        print_json(
            {
                "topics": [
                    {
                        **use._asdict(),
                        "records": records.get(use.name),
                        "problem": use.problem() if connected else None,
                    }
                    for use in uses
                ],
                "patterns": patterns_of(topology),
            }
        )
        return
    columns = ["topic", "role", "sub-topologies", "partitions"]
    print_table(
        [*columns, "records", "state"] if connected else columns,
        [_row(use, records, connected=connected) for use in uses],
    )
    for pattern in patterns_of(topology):
        print_message(f"The program also reads topics that match {pattern}.")


def _row(use: TopicUse, records: dict[str, int], *, connected: bool) -> list[Cell]:
    numbers = ", ".join(map(str, use.subtopologies)) or None
    row: list[Cell] = [use.name, ", ".join(use.roles), numbers]
    if not connected:
        return [*row, use.needed]
    problem = use.problem()
    state = styled(problem, BAD) if problem else styled("ok", GOOD)
    if use.partitions is None and use.is_internal:
        state = styled("created at startup", "dim")
    return [*row, use.partitions, records.get(use.name), state]
