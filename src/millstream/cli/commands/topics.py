"""`millstream topics app.py`: which topics a program needs, and which the cluster has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from millstream.cli.cluster import (
    Given,
    application_id_option,
    asking,
    cluster_options,
    settings_from,
)
from millstream.cli.output import BAD, GOOD, Cell, print_json, print_table, say, styled
from millstream.cli.programs.topologies import found_in
from millstream.config import StreamsConfig
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.record import TopicPartition
from millstream.tools.topics import (
    TopicUse,
    partitions_to_create,
    patterns_of,
    topic_settings,
    topics_of,
)
from millstream.topology.physical.topology import Topology

#: Stands for the application where nobody says which it is, and nothing is asked.
_UNNAMED = "APPLICATION-ID"
#: Stands for the cluster that is not asked.
_NOWHERE = "nowhere:1"


@click.command("topics")
@click.argument("program", metavar="PROGRAM[:NAME]", type=click.Path())
@application_id_option
@cluster_options
@click.option("--offline", is_flag=True, help="Ask no cluster.")
@click.option("--create", is_flag=True, help="Create the inputs and outputs that are missing.")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Of those that --create creates; by default as many as what they are joined with, else as "
    "the largest input.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Of those that --create creates; by default the broker's default.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    program: str,
    application_id: str | None,
    bootstrap_servers: str | None,
    config_file: str | None,
    offline: bool,
    create: bool,
    partitions: int | None,
    replication_factor: int | None,
    as_json: bool,
) -> int:
    """List a program's topics, and what the cluster has of them.

    Inputs and outputs have to be there before the application starts; it creates its repartition
    topics and changelogs itself. --create creates the topics of tables compacted. The exit code is
    1 if something is missing or has a wrong number of partitions. A program that has no
    StreamsConfig outside of its main part is asked for its topics only, unless --application-id and
    --bootstrap-servers say more.
    """
    found = found_in(program)
    given = Given(bootstrap_servers, config_file, application_id)
    if offline and create:
        raise click.UsageError("--offline and --create exclude each other.")
    asks = not offline and (found.config is not None or not given.is_empty)
    if create and not asks:
        raise click.UsageError("--create needs a cluster: give --bootstrap-servers.")
    if not asks:
        given = given._replace(bootstrap_servers=_NOWHERE)
    config = settings_from(given, found.config, otherwise=_UNNAMED)
    if not asks:
        _show(found.topology, topics_of(found.topology, config), {}, as_json, asked=False)
        return 0
    admin_of = partial(ClusterAdmin, replication_factor=replication_factor or -1)
    with asking(admin_of, config) as admin:
        uses = _asked(admin, found.topology, config)
        if create:
            _create(admin, found.topology, config, uses, partitions)
            uses = _asked(admin, found.topology, config)
        records = _records(admin, uses)
    _show(found.topology, uses, records, as_json, asked=True)
    return 1 if any(use.problem() for use in uses) else 0


def _asked(admin: ClusterAdmin, topology: Topology, config: StreamsConfig) -> list[TopicUse]:
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
        compacted = ", compacted as the topic of a table" if settings else ""
        say(f"created {name} with {count} partition{'' if count == 1 else 's'}{compacted}")


def _records(admin: ClusterAdmin, uses: Sequence[TopicUse]) -> dict[str, int]:
    """How many offsets lie between beginning and end of each topic that exists."""
    places = [
        TopicPartition(use.name, partition)
        for use in uses
        for partition in range(use.partitions or 0)
    ]
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    records: dict[str, int] = {}
    for place in places:
        count = ends[place] - begins[place]
        records[place.topic] = records.get(place.topic, 0) + count
    return records


def _show(
    topology: Topology,
    uses: Sequence[TopicUse],
    records: dict[str, int],
    as_json: bool,
    *,
    asked: bool,
) -> None:
    if as_json:
        print_json(
            {
                "topics": [
                    {
                        **use._asdict(),
                        "records": records.get(use.name),
                        "problem": use.problem() if asked else None,
                    }
                    for use in uses
                ],
                "patterns": patterns_of(topology),
            }
        )
        return
    columns = ["topic", "role", "sub-topologies", "partitions"]
    print_table(
        [*columns, "records", "state"] if asked else columns,
        [_row(use, records, asked=asked) for use in uses],
    )
    for pattern in patterns_of(topology):
        say(f"It also reads what matches {pattern}.")


def _row(use: TopicUse, records: dict[str, int], *, asked: bool) -> list[Cell]:
    numbers = ", ".join(map(str, use.subtopologies)) or None
    row: list[Cell] = [use.name, ", ".join(use.roles), numbers]
    if not asked:
        return [*row, use.needed]
    problem = use.problem()
    state = styled(problem, BAD) if problem else styled("ok", GOOD)
    if use.partitions is None and use.is_internal:
        state = styled("made at the start", "dim")
    return [*row, use.partitions, records.get(use.name), state]
