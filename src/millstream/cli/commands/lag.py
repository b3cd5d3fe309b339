"""`millstream lag`: the lag of an application and of its stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from millstream.cli.application_server import (
    NoServerError,
    ServerLocation,
    find_server,
    tls_options,
)
from millstream.cli.cluster_options import (
    ClusterOptions,
    cluster_options,
    connected_admin,
    settings_from,
)
from millstream.cli.output import FAINT, GOOD, WARNING, print_json, print_message, print_table
from millstream.cli.programs.topologies import load_program
from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.record import TopicPartition
from millstream.tools.application_topics import all_partitions, read_topics
from millstream.topology.physical.topology import Topology


class PartitionLag(NamedTuple):
    place: TopicPartition
    #: The committed offset of the group, if any.
    committed: int | None
    #: The offset of the first record.
    begin: int
    #: The offset after the last record.
    end: int
    #: The client that reads the partition, if any.
    reader: str | None

    @property
    def lag(self) -> int:
        """The number of offsets from the committed offset to the end.

        Without a committed offset, counts from the beginning.
        """
        start = self.begin if self.committed is None else max(self.committed, self.begin)
        return max(0, self.end - start)


def lags_of_group(
    admin: GroupAdmin, group: str, topics: Iterable[str] | None = None
) -> list[PartitionLag]:
    """Return the lag of each partition that a group reads.

    Missing topics are ignored. Without `topics`, returns the partitions that the group reads or has
    committed offsets for. Raises BrokerUnavailableError if the cluster does not respond;
    AccessDeniedError if the user may not read the group or a topic.
    """
    readers = {
        place: member.client_id for member in admin.members(group) for place in member.partitions
    }
    counts = admin.partition_counts(admin.topics_matching(".*") if topics is None else topics)
    places = all_partitions(dict(sorted(counts.items())))
    committed = admin.committed_offsets(group, places)
    if topics is None:
        places = [place for place in places if committed.get(place) is not None or place in readers]
    begins, ends = admin.beginning_offsets(places), admin.end_offsets(places)
    return [
        PartitionLag(place, committed.get(place), begins[place], ends[place], readers.get(place))
        for place in places
    ]


_STORE_COLUMNS: Final = ("store", "partition", "current_offset", "end_offset", "lag")


class StoreLags(NamedTuple):
    """The server's lag of each store and partition, or the reason that it is unknown."""

    behind: Sequence[Mapping[str, Any]] | None
    unknown: str | None = None


@click.command("lag")
@click.argument("program", metavar="[PROGRAM[:NAME]]", type=click.Path(), required=False)
@cluster_options
@click.option(
    "--url", help="The URL of the application's server; by default from its address file."
)
@click.option(
    "--token", envvar="MILLSTREAM_TOKEN", show_envvar=True, help="The token of that server."
)
@tls_options
@click.option(
    "--most", type=click.IntRange(0), metavar="N", help="Exit with 1 if the total lag exceeds N."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    program: str | None,
    cluster: ClusterOptions,
    url: str | None,
    token: str | None,
    ca: str | None,
    cert: str | None,
    tls_key: str | None,
    most: int | None,
    as_json: bool,
) -> int:
    """Show how far an application is behind its input.

    Prints the committed offset, the end, the lag and the reader of each partition that its group
    reads or has read. If the application's server can be reached, also prints how far the stores
    are behind their changelogs. Works for any consumer group, with --application-id and
    --bootstrap-servers instead of PROGRAM.
    """
    topology: Topology | None = None
    known: StreamsConfig | None = None
    if program is not None:
        _, topology, known = load_program(program)
    config = settings_from(cluster, known)
    with connected_admin(GroupAdmin, config) as admin:
        topics = None
        if topology is not None:
            topics = read_topics(topology, config, admin.topics_matching)
        lags = lags_of_group(admin, config.application_id, topics)
    options = ServerLocation(
        None, url, token, config.application_id, config.state_dir, ca, cert, tls_key
    )
    stores = store_lags(options, known)
    total = sum(each.lag for each in lags)
    if as_json:
        print_json(_document(config.application_id, lags, stores, total))
    else:
        _show(config.application_id, lags, stores, total)
    return 1 if most is not None and total > most else 0


def store_lags(options: ServerLocation, config: StreamsConfig | None = None) -> StoreLags:
    """Return the lags of the stores from the application's server.

    Raises StreamsError if the options contain a URL and the request to it fails.
    """
    try:
        behind: list[dict[str, Any]] = find_server(options, config).get("metadata", "lags")
    except NoServerError:
        return StoreLags(None, "no server of the application was found")
    except StreamsError as error:
        if options.url is not None:
            raise
        return StoreLags(None, str(error))
    return StoreLags(behind)


def _show(group: str, lags: Sequence[PartitionLag], stores: StoreLags, total: int) -> None:
    if not lags:
        print_message(
            f"Group {group} has not read anything. Check the application id and the cluster."
        )
    else:
        print_table(
            ["topic", "partition", "committed", "end", "lag", "read by"],
            [(*each.place, each.committed, each.end, each.lag, each.reader) for each in lags],
        )
        print_message(f"{total:,} records behind in total.", WARNING if total else GOOD)
    show_stores(stores)


def show_stores(stores: StoreLags) -> None:
    """Write the lags of stores as a table, or the reason that they are unknown."""
    if stores.behind is None:
        print_message(f"The lag of the stores is unknown: {stores.unknown}", FAINT)
    elif stores.behind:
        click.echo("")
        print_table(
            ["store", "partition", "at", "end", "to restore"],
            [[each[name] for name in _STORE_COLUMNS] for each in stores.behind],
        )


def _document(
    group: str, lags: Sequence[PartitionLag], stores: StoreLags, total: int
) -> dict[str, Any]:
    return {
        "group": group,
        "total": total,
        "partitions": [
            {
                **each.place._asdict(),
                "committed": each.committed,
                "begin": each.begin,
                "end": each.end,
                "lag": each.lag,
                "reader": each.reader,
            }
            for each in lags
        ],
        "stores": stores.behind,
        "stores_unknown": stores.unknown,
    }
