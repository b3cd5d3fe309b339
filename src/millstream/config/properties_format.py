"""The format of Java's properties files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from millstream.errors import ConfigError

_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: The separator after a key: the first one without a backslash before it.
_SEPARATOR: Final = re.compile(r"(?<!\\)[=:]")
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\$")


class Property(NamedTuple):
    """A property and the number of its first line in the file."""

    line: int
    key: str
    value: str


def read_properties_file(path: str | os.PathLike[str]) -> list[Property]:
    """Read key=value lines (or key: value), comments, continuation lines and escapes.

    Raises ConfigError if the file cannot be read, or a line is not a setting.
    """
    name = os.fspath(path)
    properties: list[Property] = []
    for number, line in _logical_lines(read_text(path)):
        separator = _SEPARATOR.search(line, 1)
        if separator is None:
            # The line may contain a password, so it is not quoted.
            raise ConfigError(
                f"{name}, line {number} is not a setting, because it contains no '='. Write "
                "key=value, as in security.protocol=SSL."
            )
        key, value = line[: separator.start()].strip(), line[separator.end() :].strip()
        properties.append(Property(number, _unescaped(key), _unescaped(value)))
    return properties


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a UTF-8 file, or raise ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"The file {os.fspath(path)} cannot be read: {why}.") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    began, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not whole:
            began = number
            if line.lstrip()[:1] in ("", "#", "!"):
                continue
        whole += line.lstrip()
        if _CONTINUED.search(whole):
            whole = whole[:-1]
            continue
        yield began, whole.rstrip()
        whole = ""
    if whole:
        yield began, whole


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    escaped = found[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROL.get(escaped, escaped)
