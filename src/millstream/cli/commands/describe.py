"""`millstream describe app.py`: print a program's topology without running it."""

from __future__ import annotations

import click

from millstream.cli.output import print_json
from millstream.cli.programs.topologies import load_program, topology_in
from millstream.tools.topology_facts import facts_of


@click.command("describe")
@click.argument("program", metavar="PROGRAM[:NAME]", type=click.Path())
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flowchart instead of text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "--facts", is_flag=True, help="Print topics, stores and formats as JSON, for upgrade-check."
)
def command(program: str, mermaid: bool, as_json: bool, facts: bool) -> None:
    """Print the topology of a program.

    Prints its sub-topologies, nodes, topics and stores, by default in the text format of Kafka
    Streams.

    PROGRAM is the program's file, or its module (shop.orders). NAME is the Topology, the
    StreamsBuilder, or a function without arguments that returns one. By default, it is the object
    called topology, build or build_topology, or else the only such object (or the only function
    annotated with `-> Topology`).
    """
    if mermaid + as_json + facts > 1:
        raise click.UsageError("--mermaid, --json and --facts cannot be used together.")
    if facts:
        found = load_program(program)
        click.echo(facts_of(found.topology, found.config).to_json())
        return
    description = topology_in(program).describe()
    if mermaid:
        click.echo(description.to_mermaid(), nl=False)
    elif as_json:
        print_json(description.to_dict())
    else:
        click.echo(str(description), nl=False)
