"""The location and content of a properties file."""

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
from millstream.subscriptions.properties.subscription_properties import (
    ParsedProperties,
    Properties,
    parse_properties,
)

_MAX_BYTES: Final = 1 << 20


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_reject_duplicates)


_FORMATS: Final[Mapping[str, Callable[[str], Any]]] = {".json": _json, ".toml": tomllib.loads}


@dataclass(frozen=True, slots=True)
class PropertiesFile:
    """A file that overrides the properties given in code.

    Changes to the file also apply while a subscription runs. Names are Millstream's or Decaton's,
    as for `Properties.from_mapping`. A subscription starts only if the whole file is valid. Later,
    a changed file is applied once its content has been stable for one `poll_interval`, so that
    half-written files are not applied. Problems are logged once, and the affected properties keep
    their values. A property that is no longer in the file gets the value given in code.

    The file may be replaced, and may be a symbolic link, as in Kubernetes' config maps.

    Args:
        path: the file, with the suffix `.toml` or `.json`; UTF-8, at most 1 MiB.
        poll_interval: how often the file is read.

    Raises:
        ConfigError: the path has another suffix, or the interval is shorter than 1 ms.

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
        milliseconds("PropertiesFile", "poll_interval", self.poll_interval, min_ms=1)
        ending = Path(self.path).suffix.lower()
        if ending not in _FORMATS:
            raise ConfigError(
                "A properties file ends in '.json' or '.toml', but this one is "
                f"{os.fspath(self.path)!r}."
            )

    def read(self, given: Properties) -> Properties:
        """Return the properties given in code, overridden by those in the file.

        Raises:
            ConfigError: the file cannot be read or is invalid; the message lists all problems.

        Example:
            >>> PropertiesFile("nowhere.toml").read(Properties())
            Traceback (most recent call last):
                ...
            millstream.errors.ConfigError: The properties file nowhere.toml cannot be read: \
No such file or directory.
        """
        return merge_properties(given, valid_values(self, read_content(self), given))


def read_content(file: PropertiesFile) -> bytes:
    """Read a properties file.

    Raises:
        ConfigError: the file cannot be read or is too large.
    """
    try:
        with open(file.path, "rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} cannot be read: {why}."
        ) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} is larger than {_MAX_BYTES} bytes."
        )
    return data


def valid_values(file: PropertiesFile, data: bytes, properties: Properties) -> dict[str, Any]:
    """Parse the values in `data`.

    Raises:
        ConfigError: the data is invalid; the message lists all problems.
    """
    reading = parse_content(file, data, properties)
    if reading.problems:
        problems = " ".join(problem.why for problem in reading.problems)
        raise ConfigError(f"The properties file {os.fspath(file.path)}: {problems}")
    return reading.values


def merge_properties(given: Properties, over: Mapping[str, Any]) -> Properties:
    return type(given)(**{**given.as_given(), **over})


def parse_content(file: PropertiesFile, data: bytes, properties: Properties) -> ParsedProperties:
    """Parse the values in `data`, and collect the problems.

    Raises:
        ConfigError: the data is not in the format of the file.
    """
    parse = _FORMATS[Path(file.path).suffix.lower()]
    try:
        found = parse(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} cannot be parsed: {error}."
        ) from error
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"The properties file {os.fspath(file.path)} contains a value of type "
            f"{type(found).__name__}, but must contain an object that maps property names to "
            "values."
        )
    return parse_properties(properties.table(), found)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs more than once")
    return found
