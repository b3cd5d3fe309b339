"""A file of properties: where it is, and what is in it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.properties.readings import Reading, read

_MOST_BYTES: Final = 1 << 20


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_without_repetition)


_FORMATS: Final[Mapping[str, Callable[[str], Any]]] = {".json": _json, ".toml": tomllib.loads}


@dataclass(frozen=True, slots=True)
class PropertiesFile:
    """A file whose properties win over those given in code, also while a subscription runs.

    Names are ours or Decaton's, as `Properties.from_mapping` takes them. The subscription starts
    only if all of the file can be read. Later, a changed file is taken when it has been the same
    for one `poll_interval`, so that no half-written one is; what is wrong with it is logged once,
    and the properties concerned stay as they were. What the file does not have, or not any more,
    has the value given in code.

    A file may be replaced by another one, and be a link to one, as in Kubernetes' config maps.

    Args:
        path: the file, ending in `.toml` or `.json`, UTF-8, at most 1 MiB.
        poll_interval: how often it is looked at.

    Raises:
        ConfigError: the path ends in something else, or the interval is shorter than 1 ms.

    Example:
        >>> PropertiesFile("/etc/mailer/properties.toml", poll_interval=timedelta(seconds=5)).path
        '/etc/mailer/properties.toml'
        >>> PropertiesFile("properties.yaml")
        Traceback (most recent call last):
            ...
        millstream.errors.ConfigError: A properties file ends in '.json' or '.toml', but this one \
is 'properties.yaml'.
    """

    path: str | os.PathLike[str]
    poll_interval: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        milliseconds("PropertiesFile", "poll_interval", self.poll_interval, least_ms=1)
        ending = Path(self.path).suffix.lower()
        if ending not in _FORMATS:
            raise ConfigError(
                "A properties file ends in '.json' or '.toml', but this one is "
                f"{os.fspath(self.path)!r}."
            )

    def read(self, given: Properties) -> Properties:
        """The properties with what is in the file instead of what was given in code.

        Args:
            given: the properties given in code.

        Raises:
            ConfigError: the file cannot be read, or something in it is wrong; the message has all
                of it.

        Example:
            >>> PropertiesFile("nowhere.toml").read(Properties())
            Traceback (most recent call last):
                ...
            millstream.errors.ConfigError: The properties file nowhere.toml cannot be read: \
No such file or directory.
        """
        return merged(given, values(self, content(self), given))


def content(file: PropertiesFile) -> bytes:
    """What stands in a properties file now.

    Raises:
        ConfigError: it cannot be read, or is too large.
    """
    try:
        with open(file.path, "rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} cannot be read: {why}."
        ) from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} is larger than {_MOST_BYTES} bytes."
        )
    return data


def values(file: PropertiesFile, data: bytes, properties: Properties) -> dict[str, Any]:
    """The values in `data`.

    Raises:
        ConfigError: something in it is wrong; the message has all of it.
    """
    reading = parsed(file, data, properties)
    if reading.problems:
        told = " ".join(problem.why for problem in reading.problems)
        raise ConfigError(f"The properties file {os.fspath(file.path)}: {told}")
    return reading.values


def merged(given: Properties, over: Mapping[str, Any]) -> Properties:
    """The properties given in code, with other values over them."""
    return type(given)(**{**given.as_given(), **over})


def parsed(file: PropertiesFile, data: bytes, properties: Properties) -> Reading:
    """The values in `data`, and what is wrong with some of them.

    Raises:
        ConfigError: it is not in the file's format at all.
    """
    parse = _FORMATS[Path(file.path).suffix.lower()]
    try:
        found = parse(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} is broken: {error}."
        ) from error
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} holds {type(found).__name__}, but must "
            "hold an object with properties by name."
        )
    return read(properties.table(), found)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands in it more than once")
    return found
