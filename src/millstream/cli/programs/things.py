"""Finding one thing in a program: by the name given, by usual names, or as the only one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

from millstream.cli.programs.load import Program, fail
from millstream.config_fields import did_you_mean
from millstream.errors import StreamsError

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted(Generic[T]):
    """What is looked for.

    Args:
        kinds: its classes; a function without arguments that returns one will do as well.
        usual_names: where it is looked for first.
        called: what to call it in messages: "topology".
        in_words: how to name its classes in messages: "a Topology or a StreamsBuilder".
        finished: makes what is wanted of an object of these classes.
    """

    kinds: tuple[type, ...]
    usual_names: tuple[str, ...]
    called: str
    in_words: str
    finished: Callable[[Any], T]

    @property
    def bare(self) -> str:
        """Its classes after "no": "Topology or StreamsBuilder"."""
        return " or ".join(kind.__name__ for kind in self.kinds)


def find(module: ModuleType, program: Program, wanted: Wanted[T]) -> T:
    """The thing of a program that is wanted.

    Raises:
        StreamsError: there is none, it is not clear which, or a function that makes it fails.
    """
    if program.name is not None:
        return _named(module, program, program.name, wanted)
    for usual in wanted.usual_names:
        if hasattr(module, usual):
            return _made(getattr(module, usual), usual, program, wanted)
    found = _only_one(module, program, wanted)
    if found is not None:
        return found
    raise StreamsError(
        f"{program} has no {wanted.called}: no {wanted.bare}, and nothing called "
        f"{either(wanted.usual_names)} that is or returns one. If a function does, name it: "
        f"{program}:NAME"
    )


def look_for(module: ModuleType, program: Program, wanted: Wanted[T]) -> T | None:
    """The same, whatever name was given, or None where a program has nothing of the kind.

    What bears a usual name and is something else is passed over.
    """
    for usual in wanted.usual_names:
        thing = getattr(module, usual, None)
        if isinstance(thing, wanted.kinds) or _says_so(thing, module, wanted):
            return _made(thing, usual, program, wanted)
    return _only_one(module, program, wanted)


def either(names: tuple[str, ...]) -> str:
    """Names in a sentence: a, b or c."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _named(module: ModuleType, program: Program, name: str, wanted: Wanted[T]) -> T:
    if not hasattr(module, name):
        raise StreamsError(
            f"There is no {name!r} in {program}.{did_you_mean(name, vars(module))} Name "
            f"{wanted.in_words}, or a function that returns one."
        )
    return _made(getattr(module, name), name, program, wanted)


def _made(thing: Any, name: str, program: Program, wanted: Wanted[T]) -> T:
    """What a thing of the program is or makes."""
    if callable(thing) and not isinstance(thing, wanted.kinds):
        thing = _called(thing, name, program)
        name = f"{name}()"
    if isinstance(thing, wanted.kinds):
        return wanted.finished(thing)
    raise StreamsError(
        f"{name} in {program} is {type(thing).__name__}, not {wanted.in_words}. Name another "
        f"thing: {program}:NAME"
    )


def _called(function: Callable[..., Any], name: str, program: Program) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise StreamsError(
            f"{name}() in {program} cannot be called without arguments ({error}). Give them "
            f"defaults, or name another function: {program}:NAME"
        ) from error
    try:
        return function()
    except StreamsError:
        raise
    except Exception as error:
        fail(f"{name}() in {program} failed", program, error)


def _only_one(module: ModuleType, program: Program, wanted: Wanted[T]) -> T | None:
    found: dict[int, tuple[str, T]] = {}
    things = list(vars(module).items())
    objects = [entry for entry in things if isinstance(entry[1], wanted.kinds)]
    for name, thing in objects or [each for each in things if _says_so(each[1], module, wanted)]:
        # A builder and what it has built are the same topology.
        made = _made(thing, name, program, wanted)
        found.setdefault(id(made), (name, made))
    if len(found) > 1:
        names = [name for name, _ in found.values()]
        plural = f"{wanted.called[:-1]}ies" if wanted.called[-1] == "y" else f"{wanted.called}s"
        raise StreamsError(
            f"{program} has several {plural}: {', '.join(names)}. Name one: {program}:{names[0]}"
        )
    return next(iter(found.values()))[1] if found else None


def _says_so(thing: Any, module: ModuleType, wanted: Wanted[Any]) -> bool:
    """Whether it is a function of the program that says to return one for no arguments."""
    if not inspect.isfunction(thing) or thing.__module__ != module.__name__:
        return False
    returned = thing.__annotations__.get("return")
    names = {kind.__name__ for kind in wanted.kinds}
    parameters = inspect.signature(thing).parameters.values()
    return getattr(returned, "__name__", returned) in names and all(
        each.default is not each.empty or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        for each in parameters
    )
