"""Properties as files and other programs write them, turned into checked values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from millstream.config_fields import did_you_mean
from millstream.errors import ConfigError
from millstream.subscriptions.properties.declared import RATES, Property

#: What Decaton's names begin with, and may be left out.
PREFIX: Final = "decaton."

#: Decaton's properties that mean nothing here, and why. Read over, so that a file can serve both.
WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "logging.mdc.enabled": "Python's logging has no such context",
    "client.metrics.micrometer.bound": "there is no Micrometer",
}


class Problem(NamedTuple):
    """What is wrong with one key. `name` is the property's, None if there is no such property."""

    name: str | None
    why: str


class Reading(NamedTuple):
    """Checked values by property, and what could not be read."""

    values: dict[str, Any]
    problems: list[Problem]


def read(properties: Iterable[Property], given: Mapping[str, Any]) -> Reading:
    """The values that `given` has for `properties`.

    Names may be ours (`partition_concurrency`) or Decaton's, with `decaton.` before them or not;
    a table in a table is the same as names with dots. Numbers and booleans may be strings. None is
    as good as nothing. Raises nothing: each key that is wrong becomes a problem.
    """
    known = _Known(properties)
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for one, found in known.sorted_out(given, problems):
        try:
            values[one.name] = one.checked(one.parsed(_only(one, found)))
        except ConfigError as error:
            problems.append(Problem(one.name, error.message))
    return Reading(values, problems)


class _Known:
    """The properties by all their names."""

    def __init__(self, properties: Iterable[Property]) -> None:
        self._by_name = {name: one for one in properties for name in (one.name, one.dotted)}

    def sorted_out(
        self, given: Mapping[str, Any], problems: list[Problem]
    ) -> Iterator[tuple[Property, dict[str, Any]]]:
        """Each property that is given, with its values as they were written."""
        found: dict[str, dict[str, Any]] = {}
        for written, value in _flat(given, ""):
            key = written.removeprefix(PREFIX)
            if value is None or key in WITHOUT_MEANING:
                continue
            one = self._property(key)
            if one is None:
                near = did_you_mean(key, self._by_name)
                problems.append(Problem(None, f"There is no property {written!r}.{near}"))
            else:
                found.setdefault(one.name, {})[written] = value
        for name, values in found.items():
            yield self._by_name[name], values

    def _property(self, key: str) -> Property | None:
        """The property that a key is about: it is its name, or is in a table of its name."""
        whole = self._by_name.get(key)
        if whole is not None:
            return whole
        return next(
            (one for name, one in self._by_name.items() if key.startswith(f"{name}.")), None
        )


def _only(one: Property, found: Mapping[str, Any]) -> Any:
    """The one value of a property; the rates of several topics are one value.

    Raises:
        ConfigError: it is given more than once, or is a table and must not be.
    """
    inner = {_within(one, written.removeprefix(PREFIX)): value for written, value in found.items()}
    if len(inner) < len(found) or ("" in inner and len(inner) > 1):
        raise ConfigError(f"{one.name} is given more than once: {', '.join(map(repr, found))}.")
    if "" in inner:
        return inner[""]
    if one.kind != RATES:
        raise ConfigError(f"{one.name} is a table, but must be a single value. {one.doc}")
    return inner


def _within(one: Property, key: str) -> str:
    """What a key names in the table of a property; empty if the key is the property itself."""
    name = one.dotted if key.startswith(one.dotted) else one.name
    return key.removeprefix(name).removeprefix(".")


def _flat(given: Mapping[Any, Any], before: str) -> Iterator[tuple[str, Any]]:
    """Names with dots instead of tables in tables. An empty table is a value."""
    for key, value in given.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value
