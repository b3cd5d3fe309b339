"""Settings in TOML files and in Java's properties files."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from millstream.config.client_settings import dictionary_of_client_setting
from millstream.config.fields import Setting, did_you_mean
from millstream.config.given_values import GivenValue, converted
from millstream.config.java_properties import PropertyReader
from millstream.config.properties_format import read_properties_file, read_text
from millstream.config.references import (
    declares_provider,
    located_at,
    provider_aliases,
    resolved,
)
from millstream.errors import ConfigError

_TOML_POSITION: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TABLE: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_KEY: Final = re.compile(
    r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_QUOTES_AND_SPACES: Final = re.compile(r"""[\s"']""")


def read_config_file(path: str | os.PathLike[str], settings: Sequence[Setting]) -> list[GivenValue]:
    """Read the settings in a file that ends in `.toml` or `.properties`.

    Raises ConfigError with the line of the problem.
    """
    ending = Path(path).suffix.lower()
    if ending == ".toml":
        return list(_toml_values(os.fspath(path), settings))
    if ending == ".properties":
        return list(_property_values(os.fspath(path), settings))
    raise ConfigError(
        f"A file of settings ends in '.toml' or '.properties', but this one is {os.fspath(path)!r}."
    )


# TOML.


def _toml_values(path: str, settings: Sequence[Setting]) -> Iterator[GivenValue]:
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from error
    lines = _key_lines(text)
    by_name = {field.name: field for field in settings}
    for name, value in document.items():
        field = by_name.get(name)
        if field is None:
            key = next(iter(_flattened(name, value)))[0] if isinstance(value, dict) else name
            raise ConfigError(f"{_place(path, lines, name)}: {_unknown(key, settings)}")
        if field.kind != "mapping":
            yield _toml_value(path, lines, field, None, value)
        elif not isinstance(value, dict):
            raise ConfigError(
                f"{_place(path, lines, name)}: {name} must be a table, which begins with [{name}]."
            )
        else:
            for key, item in _flattened("", value):
                yield _toml_value(path, lines, field, key, item)


def _toml_value(
    path: str, lines: Mapping[str, int], field: Setting, key: str | None, value: Any
) -> GivenValue:
    name = field.name if key is None else f"{field.name}.{key}"
    place = _place(path, lines, name)
    with located_at(place):
        return GivenValue(field, key, converted(field, key, value), place)


def _flattened(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by dotted keys.

    TOML reads `max.poll.records = 500` as nested tables.
    """
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict) and value:
            yield from _flattened(name, value)
        else:
            yield name, value


def _syntax_error(path: str, text: str, message: str) -> ConfigError:
    found = _TOML_POSITION.search(message)
    if found is None:
        return ConfigError(f"{path} is not valid TOML: {message}.")
    line = found[1] or text.count("\n") + 1
    column = "" if found[2] is None else f" (column {found[2]})"
    return ConfigError(
        f"{path}, line {line} is not valid TOML: {message[: found.start()]}{column}."
    )


def _key_lines(text: str) -> dict[str, int]:
    """Return the line of each key and table, by dotted name.

    `tomllib` does not report lines.
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.fullmatch(line):
            name = table = _QUOTES_AND_SPACES.sub("", header[1])
        elif key := _KEY.match(line):
            name = ".".join(filter(None, (table, _QUOTES_AND_SPACES.sub("", key[1]))))
        else:
            continue
        lines.setdefault(name, number)
    return lines


def _place(path: str, lines: Mapping[str, int], name: str) -> str:
    """Return the location of a key, or of the innermost table around it."""
    found = max(
        (each for each in lines if name == each or name.startswith(f"{each}.")), key=len, default=""
    )
    if not found:
        # A table without its own header, such as `consumer.max.poll.records = 500`.
        found = next((each for each in lines if each.startswith(f"{name}.")), "")
    return f"{path}, line {lines[found]}" if found else path


def _unknown(name: str, settings: Sequence[Setting]) -> str:
    for field in settings:
        if name == field.dotted or name in field.aliases:
            return (
                f"write {field.name} instead of {name}. TOML files contain Millstream's names, and "
                "files that end in .properties contain Kafka's."
            )
    dictionary = dictionary_of_client_setting(name)
    if dictionary is not None:
        return f"{name} is a setting of the Kafka clients: write it in the table [{dictionary}]."
    return f"there is no setting {name!r}.{did_you_mean(name, (field.name for field in settings))}"


# Properties.


def _property_values(path: str, settings: Sequence[Setting]) -> Iterator[GivenValue]:
    properties = read_properties_file(path)
    # As in Java, the last line takes precedence.
    by_key = {each.key: each for each in properties}
    values = {key: each.value for key, each in by_key.items()}
    with located_at(path):
        aliases = provider_aliases(values)
    by_name = {field.name: field for field in settings}
    reader = PropertyReader(settings, values)
    for key, each in by_key.items():
        if declares_provider(key) or reader.is_replaced(key):
            continue
        place = f"{path}, line {each.line}"
        with located_at(place):
            name, subkey, value = reader.read(key, resolved(each.value, aliases), f"{place}: ")
        yield GivenValue(by_name[name], subkey, value, place)
