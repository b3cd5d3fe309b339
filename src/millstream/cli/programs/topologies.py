"""The topology, settings and application of a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from millstream.app import KafkaStreams
from millstream.cli.programs.load import (
    Program,
    loaded,
    loaded_quietly,
    parse_program,
    raise_program_error,
)
from millstream.config.fields import did_you_mean
from millstream.config.streams_config import StreamsConfig
from millstream.errors import StreamsError
from millstream.parallel import ProcessorSubscription
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology

T = TypeVar("T")


@dataclass(frozen=True)
class ObjectSpec(Generic[T]):
    #: The accepted classes. A function without arguments that returns an instance is also accepted.
    kinds: tuple[type, ...]
    default_names: tuple[str, ...]
    #: The noun in messages: "topology".
    label: str
    #: The classes in messages: "a Topology or a StreamsBuilder".
    description: str
    #: Converts a found object to the result.
    convert: Callable[[Any], T]


def find(module: ModuleType, program: Program, spec: ObjectSpec[T]) -> T:
    """Return the object of a program that a spec describes.

    Raises StreamsError if there is no such object or more than one, or if the function that returns
    it fails.
    """
    if program.name is not None:
        return _named(module, program, program.name, spec)
    for name in spec.default_names:
        if hasattr(module, name):
            return _resolve(getattr(module, name), name, program, spec)
    found = _only_candidate(module, program, spec)
    if found is not None:
        return found
    classes = " or ".join(kind.__name__ for kind in spec.kinds)
    *names, last = spec.default_names
    raise StreamsError(
        f"{program} has no {spec.label}: no {classes}, and no {', '.join(names)} or {last} that is "
        f"or returns one. If another function returns one, use {program}:NAME"
    )


def find_optional(module: ModuleType, program: Program, spec: ObjectSpec[T]) -> T | None:
    """Return the object of a program that a spec describes, or None.

    Ignores `program.name`, and objects of other classes that have a default name.
    """
    for name in spec.default_names:
        candidate = getattr(module, name, None)
        if isinstance(candidate, spec.kinds) or _is_factory(candidate, module, spec):
            return _resolve(candidate, name, program, spec)
    return _only_candidate(module, program, spec)


def _named(module: ModuleType, program: Program, name: str, spec: ObjectSpec[T]) -> T:
    if not hasattr(module, name):
        raise StreamsError(
            f"There is no {name!r} in {program}.{did_you_mean(name, vars(module))} Use the name "
            f"of {spec.description}, or a function that returns one."
        )
    return _resolve(getattr(module, name), name, program, spec)


def _resolve(candidate: Any, name: str, program: Program, spec: ObjectSpec[T]) -> T:
    """Return the result for an object or a function that returns one."""
    if callable(candidate) and not isinstance(candidate, spec.kinds):
        candidate = _call(candidate, name, program)
        name = f"{name}()"
    if isinstance(candidate, spec.kinds):
        return spec.convert(candidate)
    raise StreamsError(
        f"{name} in {program} is {type(candidate).__name__}, not {spec.description}. Use another "
        f"name: {program}:NAME"
    )


def _call(function: Callable[..., Any], name: str, program: Program) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise StreamsError(
            f"{name}() in {program} cannot be called without arguments ({error}). Add defaults, "
            f"or use another function: {program}:NAME"
        ) from error
    try:
        return function()
    except StreamsError:
        raise
    except Exception as error:
        raise_program_error(f"{name}() in {program} failed", program, error)


def _only_candidate(module: ModuleType, program: Program, spec: ObjectSpec[T]) -> T | None:
    found: dict[int, tuple[str, T]] = {}
    candidates = list(vars(module).items())
    objects = [entry for entry in candidates if isinstance(entry[1], spec.kinds)]
    for name, candidate in objects or [
        each for each in candidates if _is_factory(each[1], module, spec)
    ]:
        # A builder and the topology that it has built resolve to the same object.
        made = _resolve(candidate, name, program, spec)
        found.setdefault(id(made), (name, made))
    if len(found) > 1:
        names = [name for name, _ in found.values()]
        plural = f"{spec.label[:-1]}ies" if spec.label[-1] == "y" else f"{spec.label}s"
        raise StreamsError(
            f"{program} has several {plural}: {', '.join(names)}. Choose one: {program}:{names[0]}"
        )
    return next(iter(found.values()))[1] if found else None


def _is_factory(candidate: Any, module: ModuleType, spec: ObjectSpec[Any]) -> bool:
    """Return whether a function of the program is annotated to return such an object."""
    if not inspect.isfunction(candidate) or candidate.__module__ != module.__name__:
        return False
    returned = candidate.__annotations__.get("return")
    names = {kind.__name__ for kind in spec.kinds}
    parameters = inspect.signature(candidate).parameters.values()
    return getattr(returned, "__name__", returned) in names and all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )


def _build(topology: Topology | StreamsBuilder) -> Topology:
    return topology.build() if isinstance(topology, StreamsBuilder) else topology


TOPOLOGY: Final = ObjectSpec(
    (Topology, StreamsBuilder),
    ("topology", "build", "build_topology"),
    "topology",
    "a Topology or a StreamsBuilder",
    _build,
)
CONFIG: Final[ObjectSpec[StreamsConfig]] = ObjectSpec(
    (StreamsConfig,),
    ("config", "make_config", "settings"),
    "StreamsConfig",
    "a StreamsConfig",
    lambda config: config,
)
APPLICATION: Final[ObjectSpec[KafkaStreams | ProcessorSubscription]] = ObjectSpec(
    (KafkaStreams, ProcessorSubscription),
    ("streams", "application", "app", "subscription"),
    "application",
    "a KafkaStreams or a ProcessorSubscription",
    lambda application: application,
)


class LoadedProgram(NamedTuple):
    program: Program
    topology: Topology
    config: StreamsConfig | None


def topology_in(program: str) -> Topology:
    """Return the topology that a program builds.

    The program is loaded like a module, so code under `if __name__ == "__main__":` does not run.
    Its output goes to stderr, because stdout is for the output of the command. `program` is the
    path of a file, or the dotted name of a module that can be imported from the working directory,
    optionally followed by a colon and the name of an object in it. Raises StreamsError if the file,
    module or name does not exist, the program fails to load, or the topology is ambiguous.
    """
    with loaded_quietly(parse_program(program)) as (found, module):
        return find(module, found, TOPOLOGY)


def load_program(program: str) -> LoadedProgram:
    """Return the topology of a program, and its module-level settings, if any."""
    with loaded_quietly(parse_program(program)) as (found, module):
        return LoadedProgram(
            found, find(module, found, TOPOLOGY), find_optional(module, found, CONFIG)
        )


def config_in(program: str) -> StreamsConfig | None:
    """Return the module-level settings of a program, or None."""
    with loaded_quietly(parse_program(program)) as (found, module):
        return find_optional(module, found, CONFIG)


@contextmanager
def application_in(program: str) -> Iterator[KafkaStreams | ProcessorSubscription]:
    """Yield a program's application, or create it from topology and settings.

    The program's folder stays on the import path until the context ends.
    """
    with loaded(parse_program(program)) as (found, module):
        if found.name is not None:
            yield find(module, found, APPLICATION)
            return
        application = find_optional(module, found, APPLICATION)
        config = None if application is not None else find_optional(module, found, CONFIG)
        if config is not None:
            application = KafkaStreams(find(module, found, TOPOLOGY), config)
        yield application or find(module, found, APPLICATION)
