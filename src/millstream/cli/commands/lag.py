"""`millstream lag`: how far an application is behind its input, and its stores behind theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from millstream.cli.cluster import (
    Given,
    application_id_option,
    asking,
    cluster_options,
    settings_from,
)
from millstream.cli.output import FAINT, GOOD, WARNING, print_json, print_table, say
from millstream.cli.programs.topologies import found_in
from millstream.cli.server import NoServerError, Sought, server_of
from millstream.cli.server_tls import tls_options
from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.tools.lags import PartitionLag, lags_of_group
from millstream.tools.topics import read_topics
from millstream.topology.physical.topology import Topology


class StoreLags(NamedTuple):
    """Of each store and partition where it is, and where its changelog ends, as the server tells
    it; or why that is not known."""

    behind: Sequence[Mapping[str, Any]] | None
    unknown: str | None = None


@click.command("lag")
@click.argument("program", metavar="[PROGRAM[:NAME]]", type=click.Path(), required=False)
@application_id_option
@cluster_options
@click.option(
    "--url", help="Of the application's server; by default what it tells on this machine."
)
@click.option("--token", envvar="MILLSTREAM_TOKEN", show_envvar=True, help="For that server.")
@tls_options
@click.option(
    "--most", type=click.IntRange(0), metavar="N", help="Exit with 1 if the total lag is more."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(
    program: str | None,
    application_id: str | None,
    bootstrap_servers: str | None,
    config_file: str | None,
    url: str | None,
    token: str | None,
    ca: str | None,
    cert: str | None,
    tls_key: str | None,
    most: int | None,
    as_json: bool,
) -> int:
    """Show how far an application is behind its input.

    Of each partition that its group reads, or has read: what is committed, the end, the records in
    between, and who reads it. Where the application's server can be reached, how far its stores are
    behind their changelogs, too: what is left to restore. Works for any consumer group, with
    --application-id and --bootstrap-servers instead of PROGRAM.
    """
    topology: Topology | None = None
    known: StreamsConfig | None = None
    if program is not None:
        _, topology, known = found_in(program)
    config = settings_from(Given(bootstrap_servers, config_file, application_id), known)
    with asking(GroupAdmin, config) as admin:
        topics = None
        if topology is not None:
            topics = read_topics(topology, config, admin.topics_matching)
        lags = lags_of_group(admin, config.application_id, topics)
    sought = Sought(None, url, token, config.application_id, config.state_dir, ca, cert, tls_key)
    stores = store_lags(sought, known)
    total = sum(each.lag for each in lags)
    if as_json:
        print_json(_document(config.application_id, lags, stores, total))
    else:
        _show(config.application_id, lags, stores, total)
    return 1 if most is not None and total > most else 0


def store_lags(sought: Sought, config: StreamsConfig | None = None) -> StoreLags:
    """The lags of the stores by the application's server.

    Args:
        sought: the server.
        config: the settings of the program, if there is one.

    Raises:
        StreamsError: the server that the options name does not answer so.
    """
    try:
        behind: list[dict[str, Any]] = server_of(sought, config).get("metadata", "lags")
    except NoServerError:
        return StoreLags(None, "no server of the application was found")
    except StreamsError as error:
        if sought.url is not None:
            raise
        return StoreLags(None, str(error))
    return StoreLags(behind)


def _show(
    group: str,
    lags: Sequence[PartitionLag],
    stores: StoreLags,
    total: int,
) -> None:
    if not lags:
        say(f"Group {group} has read nothing: is that its id, and the cluster the right one?")
    else:
        print_table(
            ["topic", "partition", "committed", "end", "lag", "read by"],
            [
                (
                    each.place.topic,
                    each.place.partition,
                    each.committed,
                    each.end,
                    each.lag,
                    each.reader,
                )
                for each in lags
            ],
        )
        say(f"{total:,} records behind in all.", WARNING if total else GOOD)
    show_stores(stores)


def show_stores(stores: StoreLags) -> None:
    """Write the lags of stores as a table, or why there are none."""
    if stores.behind is None:
        say(f"The lag of stores is not known: {stores.unknown}", FAINT)
    elif stores.behind:
        click.echo("")
        print_table(
            ["store", "partition", "at", "end", "to restore"],
            [
                (
                    each["store"],
                    each["partition"],
                    each["current_offset"],
                    each["end_offset"],
                    each["lag"],
                )
                for each in stores.behind
            ],
        )


def _document(
    group: str,
    lags: Sequence[PartitionLag],
    stores: StoreLags,
    total: int,
) -> dict[str, Any]:
    return {
        "group": group,
        "total": total,
        "partitions": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
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
