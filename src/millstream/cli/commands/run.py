"""`millstream run app.py`: run a program, optionally with a broker and restarts."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from millstream.cli.application_server import temporary_state_dir
from millstream.cli.commands.broker import DEFAULT_PORT
from millstream.cli.output import FAINT, print_message
from millstream.cli.programs.facts_subprocess import facts_in_subprocess
from millstream.cli.programs.load import command_for, is_script, source_of
from millstream.cli.programs.supervised_program import SupervisedProgram
from millstream.cli.programs.topologies import application_in
from millstream.embedded.embedded_kafka import EmbeddedKafka
from millstream.errors import StreamsError
from millstream.spark.sessions.session import MASTER_VARIABLE, require_pyspark
from millstream.tools.topology_facts import external_topics

#: The variables that pass a program the address of its own broker, and a state directory for that
#: broker's topics.
BOOTSTRAP_VARIABLE: Final = "BOOTSTRAP_SERVERS"
STATE_VARIABLE: Final = "STATE_DIR"
#: The environment variable with the arguments for PySpark's JVM.
_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True}
)
@click.argument("program", metavar="PROGRAM[:NAME]", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--watch", is_flag=True, help="Restart the program whenever its files change.")
@click.option(
    "--with-broker",
    is_flag=True,
    help="Start an Apache Kafka broker, and create the topics that the program reads and writes.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    envvar="MILLSTREAM_BROKER_PORT",
    show_default=True,
    show_envvar=True,
    help="The port of the broker; 0 chooses a free one.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Number of partitions of the topics that are created.",
)
@click.option(
    "--spark",
    "master",
    metavar="MASTER",
    help="The Spark master: local[4], spark://…, k8s://…, yarn. By default a local session that is "
    "large enough for the program.",
)
def command(
    program: str,
    arguments: tuple[str, ...],
    watch: bool,
    with_broker: bool,
    port: int,
    partitions: int,
    master: str | None,
) -> int:
    """Run a program, optionally with restarts and a broker.

    PROGRAM is the program's file, or its module (shop.orders). A program with `if __name__ ==
    "__main__":` runs as with `python`, with the ARGUMENTS that follow; arguments after `--` are
    never options of this command. Otherwise, the program's KafkaStreams or ProcessorSubscription
    runs, or its topology with its StreamsConfig.

    With --with-broker, the environment variables BOOTSTRAP_SERVERS and STATE_DIR contain the
    address of the broker and a folder for the program's state. The data of the broker and the
    folder are deleted at the end. The command forwards signals to the program, and returns its exit
    code.
    """
    command_line = command_for(program, arguments)
    if master is not None:
        require_pyspark()
        # The first variable is for sessions that the program creates itself.
        os.environ[_SUBMIT_ARGUMENTS] = _with_master(os.environ.get(_SUBMIT_ARGUMENTS, ""), master)
        os.environ[MASTER_VARIABLE] = master
    if not (watch or with_broker):
        if is_script(program):
            sys.stdout.flush()
            sys.stderr.flush()
            # Replaces this process: a parent could interfere with signals, input or profilers.
            os.execv(command_line[0], command_line)
        with application_in(program) as application:
            application.run()
        return 0
    watched = _folder(program) if watch else None
    with ExitStack() as stack:
        if not with_broker:
            return SupervisedProgram(command_line, os.environ, watched).run()
        kafka = stack.enter_context(EmbeddedKafka(port=port or None))
        servers = kafka.bootstrap_servers
        print_message(f"Apache Kafka is running at {servers}", FAINT)
        topics = _Topics(kafka, program, partitions)
        environment = {
            **os.environ,
            BOOTSTRAP_VARIABLE: servers,
            # Earlier state would belong to other topics with the same names.
            STATE_VARIABLE: stack.enter_context(temporary_state_dir()),
        }
        return SupervisedProgram(command_line, environment, watched, topics.create).run()


def _with_master(arguments: str, master: str) -> str:
    """Append a master to PySpark's arguments; the last master takes effect."""
    program = "pyspark-shell"
    try:
        others = [word for word in shlex.split(arguments) if word != program]
    except ValueError as error:
        raise StreamsError(f"{_SUBMIT_ARGUMENTS} cannot be read ({error}): {arguments}") from error
    return shlex.join([*others, "--master", master, program])


def _folder(program: str) -> Path:
    """Return the folder to watch.

    This is the working directory if it contains the program's file.

    Otherwise, the folder of the file.
    """
    source = source_of(program).resolve()
    here = Path.cwd()
    return here if source.is_relative_to(here) else source.parent


class _Topics:
    """The topics that a program needs on its own broker."""

    def __init__(self, kafka: EmbeddedKafka, program: str, partitions: int) -> None:
        self._kafka = kafka
        self._program = program
        self._partitions = partitions
        self._created: set[str] = set()

    def create(self) -> None:
        try:
            facts = facts_in_subprocess(self._program)
        except StreamsError as error:
            print_message(
                f"no topics were created, because the topology was not found: {error}", FAINT
            )
            return
        new = [topic for topic in external_topics(facts) if topic not in self._created]
        for topic in new:
            settings = {"cleanup.policy": "compact"} if topic in facts.compacted_topics else {}
            self._kafka.create_topic(topic, self._partitions, settings)
        self._created.update(new)
        if new:
            listed = ", ".join(f"{topic} ({self._partitions} partitions)" for topic in new)
            print_message(f"created {listed}", FAINT)
