"""`millstream run app.py`: a program as `python app.py` runs it, again after each change, with a
broker of its own."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from millstream.cli.commands.broker import DEFAULT_PORT
from millstream.cli.output import FAINT, say
from millstream.cli.programs.elsewhere import facts_elsewhere
from millstream.cli.programs.scripts import command_for, is_script, source_of
from millstream.cli.programs.state_dirs import passing_state_dir
from millstream.cli.programs.supervised import Supervised
from millstream.cli.programs.topologies import runnable_in
from millstream.embedded.broker import EmbeddedKafka
from millstream.errors import StreamsError
from millstream.spark.sessions.installed import require_pyspark
from millstream.spark.sessions.session import MASTER_VARIABLE
from millstream.tools.facts import external_topics

#: Tell a program where the broker is that was started with it, and where to keep what belongs to
#: that broker's topics.
BOOTSTRAP_VARIABLE: Final = "BOOTSTRAP_SERVERS"
STATE_VARIABLE: Final = "STATE_DIR"
#: What PySpark starts its JVM with.
_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True}
)
@click.argument("program", metavar="PROGRAM[:NAME]", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--watch", is_flag=True, help="Start it again whenever its files change.")
@click.option(
    "--with-broker",
    is_flag=True,
    help="Start an Apache Kafka broker with it, and create the topics that it reads and writes.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    envvar="MILLSTREAM_BROKER_PORT",
    show_default=True,
    show_envvar=True,
    help="Of that broker; 0 chooses a free one.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Of the topics that it creates there.",
)
@click.option(
    "--spark",
    "master",
    metavar="MASTER",
    help="Where Spark runs its threads: local[4], spark://…, k8s://…, yarn. "
    "By default a local session that is as large as needed.",
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
    """Run a program, again after each change if told so.

    PROGRAM is its file, or its module (shop.orders). If it has `if __name__ == "__main__":`, it is
    run as Python would, with the ARGUMENTS that follow (those after `--` whatever they look like).
    If not, what is run is the KafkaStreams or ProcessorSubscription that it makes, or its topology
    with its StreamsConfig.

    A broker started with it is told to the program in the variable BOOTSTRAP_SERVERS, and in
    STATE_DIR a folder for its state: both go away in the end, with all that is in them. Exit code
    and signals are those of the program.
    """
    words = command_for(program, arguments)
    if master is not None:
        require_pyspark()
        # The first is for sessions that the program creates itself.
        os.environ[_SUBMIT_ARGUMENTS] = _with_master(os.environ.get(_SUBMIT_ARGUMENTS, ""), master)
        os.environ[MASTER_VARIABLE] = master
    if not (watch or with_broker):
        if is_script(program):
            sys.stdout.flush()
            sys.stderr.flush()
            # Nothing of this process is left to be in the way of signals, input or profilers.
            os.execv(words[0], words)
        with runnable_in(program) as application:
            application.run()
        return 0
    watched = _folder(program) if watch else None
    with ExitStack() as stack:
        if not with_broker:
            return Supervised(words, os.environ, watched).run()
        kafka = stack.enter_context(EmbeddedKafka(port=port or None))
        servers = kafka.bootstrap_servers
        say(f"Apache Kafka is running at {servers}", FAINT)
        topics = _Topics(kafka, program, partitions)
        environment = {
            **os.environ,
            BOOTSTRAP_VARIABLE: servers,
            # State of before would be of other topics under the same names.
            STATE_VARIABLE: stack.enter_context(passing_state_dir()),
        }
        return Supervised(words, environment, watched, topics.create).run()


def _with_master(arguments: str, master: str) -> str:
    """What PySpark starts its JVM with, and a master: the last one that it names is taken."""
    program = "pyspark-shell"
    try:
        others = [word for word in shlex.split(arguments) if word != program]
    except ValueError as error:
        raise StreamsError(f"{_SUBMIT_ARGUMENTS} cannot be read ({error}): {arguments}") from error
    return shlex.join([*others, "--master", master, program])


def _folder(program: str) -> Path:
    """Where the files of a program are: beside it, or where its module is imported from."""
    source = source_of(program).resolve()
    here = Path.cwd()
    return here if source.is_relative_to(here) else source.parent


class _Topics:
    """The topics of a program on the broker that was started with it."""

    def __init__(self, kafka: EmbeddedKafka, program: str, partitions: int) -> None:
        self._kafka = kafka
        self._program = program
        self._partitions = partitions
        self._created: set[str] = set()

    def create(self) -> None:
        """Create those that are not there yet."""
        try:
            facts = facts_elsewhere(self._program)
        except StreamsError as error:
            say(f"no topics were created, since the topology could not be found: {error}", FAINT)
            return
        new = [topic for topic in external_topics(facts) if topic not in self._created]
        for topic in new:
            settings = {"cleanup.policy": "compact"} if topic in facts.compacted_topics else {}
            self._kafka.create_topic(topic, self._partitions, settings)
        self._created.update(new)
        if new:
            listed = ", ".join(f"{topic} ({self._partitions} partitions)" for topic in new)
            say(f"created {listed}", FAINT)
