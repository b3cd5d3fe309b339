"""The topology of a program, and the settings that stand beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from millstream.app import KafkaStreams
from millstream.cli.programs.load import Program, loaded, loaded_quietly, program_of
from millstream.cli.programs.things import Wanted, find, look_for
from millstream.config import StreamsConfig
from millstream.parallel import ProcessorSubscription
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology


def _built(thing: Topology | StreamsBuilder) -> Topology:
    return thing.build() if isinstance(thing, StreamsBuilder) else thing


TOPOLOGY: Final = Wanted(
    (Topology, StreamsBuilder),
    ("topology", "build", "build_topology"),
    "topology",
    "a Topology or a StreamsBuilder",
    _built,
)
CONFIG: Final[Wanted[StreamsConfig]] = Wanted(
    (StreamsConfig,),
    ("config", "make_config", "settings"),
    "StreamsConfig",
    "a StreamsConfig",
    lambda config: config,
)
APPLICATION: Final[Wanted[KafkaStreams | ProcessorSubscription]] = Wanted(
    (KafkaStreams, ProcessorSubscription),
    ("streams", "application", "app", "subscription"),
    "application",
    "a KafkaStreams or a ProcessorSubscription",
    lambda application: application,
)


class Found(NamedTuple):
    """What a program says it computes, and with which settings, as far as it says so."""

    program: Program
    topology: Topology
    config: StreamsConfig | None


def topology_of(program: str) -> Topology:
    """The topology that a program builds.

    The program is loaded like a module, so what stands under `if __name__ == "__main__":` is not
    run. What it prints goes to stderr: stdout is the command's.

    Args:
        program: the path of its file, or its dotted name as a module that can be imported from
            here, and optionally a colon and a name in it.

    Raises:
        StreamsError: there is no such file, module or name, the program fails while it is loaded,
            or it is not clear where its topology is.
    """
    with loaded_quietly(program_of(program)) as (found, module):
        return find(module, found, TOPOLOGY)


def found_in(program: str) -> Found:
    """The same, with the settings that the program has outside of its main part.

    Raises:
        StreamsError: as `topology_of`, or there are several settings.
    """
    with loaded_quietly(program_of(program)) as (found, module):
        return Found(found, find(module, found, TOPOLOGY), look_for(module, found, CONFIG))


def config_of(program: str) -> StreamsConfig | None:
    """The settings that a program has outside of its main part, if there are any.

    Raises:
        StreamsError: as `topology_of`, or there are several settings.
    """
    with loaded_quietly(program_of(program)) as (found, module):
        return look_for(module, found, CONFIG)


@contextmanager
def runnable_in(program: str) -> Iterator[KafkaStreams | ProcessorSubscription]:
    """The application that a program makes, or that its topology and its settings make.

    Meanwhile it may import its neighbours.

    Raises:
        StreamsError: as `topology_of`; or there is neither an application nor settings.
    """
    with loaded(program_of(program)) as (found, module):
        if found.name is not None:
            yield find(module, found, APPLICATION)
            return
        application = look_for(module, found, APPLICATION)
        config = None if application is not None else look_for(module, found, CONFIG)
        if config is not None:
            application = KafkaStreams(find(module, found, TOPOLOGY), config)
        yield application or find(module, found, APPLICATION)
