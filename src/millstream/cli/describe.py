"""`millstream describe app.py`: what a program's topology looks like, without running it.

The program is a file, or a module as `import` knows it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from millstream.config_fields import did_you_mean
from millstream.errors import StreamsError
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.physical.topology import Topology

NAME = "describe"
HELP = "Print the topology of a program: sub-topologies, nodes, topics, stores."

#: Where a topology is looked for first; each may be the topology, its builder, or a function.
_USUAL_NAMES = ("topology", "build", "build_topology")


class _Program(NamedTuple):
    """A user's program: how the user calls it, and its file."""

    called: str
    file: Path

    def __str__(self) -> str:
        return self.called


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program and the form of the description."""
    parser.add_argument(
        "program",
        metavar="PROGRAM[:NAME]",
        help="the program's file, or its module (shop.orders), and in it the Topology, the "
        "StreamsBuilder, or a function without arguments that returns one; by default what is "
        f"called {_either(_USUAL_NAMES)}, or the only one (of functions, those that say "
        "`-> Topology`)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--mermaid", action="store_true", help="as a Mermaid flowchart instead of Kafka's text"
    )
    form.add_argument("--json", action="store_true", help="as JSON instead of Kafka's text")


def run(arguments: argparse.Namespace) -> int:
    """Load the program and print its topology."""
    description = topology_of(arguments.program).describe()
    if arguments.mermaid:
        print(description.to_mermaid(), end="")
    elif arguments.json:
        print(json.dumps(description.to_dict(), indent=2))
    else:
        print(description, end="")
    return 0


def topology_of(program: str) -> Topology:
    """The topology that a program builds.

    The program is loaded like a module, so what stands under `if __name__ == "__main__":` is not
    run.

    Args:
        program: the path of its file, or its dotted name as a module that can be imported from
            here, and optionally a colon and a name in it.

    Raises:
        StreamsError: there is no such file, module or name, the program fails while it is loaded,
            or it is not clear where its topology is.
    """
    called, name = _split(program)
    path = Path(called)
    with _importable(Path.cwd() if _is_module(called) else path.parent):
        found = _Program(called, path)
        if _is_module(called):
            module = _imported(called)
            found = _Program(called, Path(str(module.__file__)))
        else:
            module = _loaded(found)
        if name is not None:
            return _named(module, found, name)
        for usual in _USUAL_NAMES:
            if hasattr(module, usual):
                return _made(getattr(module, usual), usual, found)
        return _only_one(module, found)


def _split(program: str) -> tuple[str, str | None]:
    called, colon, name = program.rpartition(":")
    # What follows the colon of a drive letter is no name.
    if colon and name.isidentifier() and not Path(program).exists():
        return called, name
    return program, None


def _is_module(called: str) -> bool:
    """Whether it is the name of a module, and not the path of a file."""
    if Path(called).is_file() or called.endswith(".py"):
        return False
    return all(part.isidentifier() for part in called.split("."))


def _either(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the program import its neighbours, as `python app.py` does."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _loaded(program: _Program) -> ModuleType:
    path = program.file
    if not path.is_file():
        hint = " It is a directory." if path.is_dir() else ""
        raise StreamsError(
            f"There is no file {path}.{hint} Give the path of the program's file, or its name as a "
            "module: shop.orders"
        )
    # A name of its own: a program called json.py must not take the place of another module.
    name = f"_described_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StreamsError(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickling look their module up by its name.
    sys.modules[name] = module
    with _telling(program):
        spec.loader.exec_module(module)
    return module


def _imported(name: str) -> ModuleType:
    importlib.invalidate_caches()
    with _telling(_Program(name, Path(*name.split(".")).with_suffix(".py"))):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A module that the program itself misses is the program's failure.
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise StreamsError(
                f"There is no file and no module {name}: {error}. Give the path of the program's "
                "file, or run this where the module can be imported."
            ) from error
    if getattr(module, "__file__", None) is None:
        raise StreamsError(
            f"There is no file {name}. It is a directory. Give the path of the program's file, or "
            "its name as a module: shop.orders"
        )
    return module


@contextmanager
def _telling(program: _Program) -> Iterator[None]:
    """Tell what goes wrong while a program is loaded."""
    try:
        yield
    except StreamsError:
        raise
    except SystemExit as error:
        raise StreamsError(
            f"{program} ended the process while it was loaded (exit code {error.code}). Put what "
            'runs the program under `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        _fail(f"{program} could not be loaded", program, error)


def _named(module: ModuleType, program: _Program, name: str) -> Topology:
    if not hasattr(module, name):
        raise StreamsError(
            f"There is no {name!r} in {program}.{did_you_mean(name, vars(module))} Name a "
            "Topology, a StreamsBuilder, or a function that returns one."
        )
    return _made(getattr(module, name), name, program)


def _made(thing: Any, name: str, program: _Program) -> Topology:
    """The topology that a thing of the program is or makes."""
    if callable(thing) and not isinstance(thing, Topology | StreamsBuilder):
        thing = _called(thing, name, program)
        name = f"{name}()"
    if isinstance(thing, StreamsBuilder):
        return thing.build()
    if isinstance(thing, Topology):
        return thing
    raise StreamsError(
        f"{name} in {program} is {type(thing).__name__}, not a Topology or a StreamsBuilder. Name "
        f"another thing: millstream describe {program}:NAME"
    )


def _called(function: Callable[..., Any], name: str, program: _Program) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise StreamsError(
            f"{name}() in {program} cannot be called without arguments ({error}). Give them "
            f"defaults, or name another function: millstream describe {program}:NAME"
        ) from error
    try:
        return function()
    except StreamsError:
        raise
    except Exception as error:
        _fail(f"{name}() in {program} failed", program, error)


def _only_one(module: ModuleType, program: _Program) -> Topology:
    found: dict[int, tuple[str, Topology]] = {}
    things = list(vars(module).items())
    objects = [entry for entry in things if isinstance(entry[1], Topology | StreamsBuilder)]
    for name, thing in objects or [entry for entry in things if _says_so(entry[1], module)]:
        # A builder and what it has built are the same topology.
        topology = _made(thing, name, program)
        found.setdefault(id(topology), (name, topology))
    if len(found) == 1:
        return next(iter(found.values()))[1]
    if found:
        names = [name for name, _ in found.values()]
        raise StreamsError(
            f"{program} has several topologies: {', '.join(names)}. Name one: "
            f"millstream describe {program}:{names[0]}"
        )
    raise StreamsError(
        f"{program} has no topology: no Topology or StreamsBuilder, and nothing called "
        f"{_either(_USUAL_NAMES)} that is or returns one. If a function does, name it: "
        f"millstream describe {program}:NAME"
    )


def _says_so(thing: Any, module: ModuleType) -> bool:
    """Whether it is a function of the program that says to return a topology for no arguments."""
    if not inspect.isfunction(thing) or thing.__module__ != module.__name__:
        return False
    returned = thing.__annotations__.get("return")
    parameters = inspect.signature(thing).parameters.values()
    return getattr(returned, "__name__", returned) in ("Topology", "StreamsBuilder") and all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )


def _fail(what: str, program: _Program, error: Exception) -> NoReturn:
    """Tell the program's own error by the innermost line of the program's file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == program.file.resolve()
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = "" if line is None else f" (line {line})"
    raise StreamsError(f"{what}{where}: {type(error).__name__}: {error}") from error
