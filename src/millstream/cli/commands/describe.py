"""`millstream describe app.py`: what a program's topology looks like, without running it."""

from __future__ import annotations

import click

from millstream.cli.output import print_json
from millstream.cli.programs.topologies import found_in, topology_of
from millstream.tools.facts import facts_of


@click.command("describe")
@click.argument("program", metavar="PROGRAM[:NAME]", type=click.Path())
@click.option("--mermaid", is_flag=True, help="As a Mermaid flowchart instead of Kafka's text.")
@click.option("--json", "as_json", is_flag=True, help="As JSON instead of Kafka's text.")
@click.option(
    "--facts",
    is_flag=True,
    help="As JSON what outlives the program: topics, stores, formats; for upgrade-check.",
)
def command(program: str, mermaid: bool, as_json: bool, facts: bool) -> None:
    """Print the topology of a program.

    Its sub-topologies, nodes, topics and stores, in Kafka Streams' words.

    PROGRAM is the program's file, or its module (shop.orders); NAME is in it the Topology, the
    StreamsBuilder, or a function without arguments that returns one; by default what is called
    topology, build or build_topology, or the only one (of functions, those that say
    `-> Topology`).
    """
    if mermaid + as_json + facts > 1:
        raise click.UsageError("--mermaid, --json and --facts exclude each other.")
    if facts:
        found = found_in(program)
        click.echo(facts_of(found.topology, found.config).to_json())
        return
    description = topology_of(program).describe()
    if mermaid:
        click.echo(description.to_mermaid(), nl=False)
    elif as_json:
        print_json(description.to_dict())
    else:
        click.echo(str(description), nl=False)
