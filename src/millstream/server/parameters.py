"""What can stand in the path and behind the question mark, and what it must be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from millstream.server.http_error import HttpError

#: No number of ours is larger: offsets, times, counts.
INTEGER_MOST: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_BOOLEANS: Final = {"true": True, "false": False}
#: More than any path takes; what is above was not made by hand.
_PARAMETERS_MOST: Final = 32


@dataclass(frozen=True)
class Parameter:
    """A value that a request gives.

    Args:
        name: as it is written.
        doc: what it is, for the document.
        kind: its type in JSON.
        default: what holds without it; None if nothing does.
        choices: the only texts it may be.
        least: the smallest number.
        most: the largest number.
        is_in_path: whether it is part of the path, and so always given.
        required: whether it must be given.
    """

    name: str
    doc: str
    kind: Literal["string", "integer", "boolean"] = "string"
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = INTEGER_MOST
    is_in_path: bool = False
    required: bool = False

    def read(self, text: str) -> Any:
        """The value that a text stands for.

        Raises:
            HttpError: it stands for none.
        """
        if self.kind == "integer":
            if _INTEGER.fullmatch(text) and self.least <= int(text) <= self.most:
                return int(text)
            raise self._wrong(text, f"a number from {self.least} to {self.most}")
        if self.kind == "boolean":
            if text in _BOOLEANS:
                return _BOOLEANS[text]
            raise self._wrong(text, "true or false")
        if self.choices and text not in self.choices:
            raise self._wrong(text, f"one of {', '.join(self.choices)}")
        return text

    def _wrong(self, text: str, expected: str) -> HttpError:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        return bad_request(f"{self.name} is {shown!r}, but must be {expected}.")


def in_path(name: str, doc: str) -> Parameter:
    """A text in the path."""
    return Parameter(name, doc, is_in_path=True, required=True)


def read_query(query: bytes, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The values of all parameters that are not in the path; None for what is neither given nor
    has a default.

    Raises:
        HttpError: something is unknown, given twice, missing, or not what it must be.
    """
    known = {each.name: each for each in parameters if not each.is_in_path}
    values: dict[str, Any] = {}
    for name, text in _pairs(query):
        if name not in known:
            can = f"; there are {', '.join(known)}" if known else ""
            raise bad_request(f"There is no parameter {name[:40]!r}{can}.")
        if name in values:
            raise bad_request(f"{name} is given twice.")
        values[name] = known[name].read(text)
    for each in known.values():
        if each.required and each.name not in values:
            raise bad_request(f"{each.name} is missing: {each.doc}")
    return {name: values.get(name, each.default) for name, each in known.items()}


def decoded(text: bytes) -> str:
    """A part of a URL as text.

    A key that is not what was meant must not be looked up, so nothing is guessed or replaced.

    Raises:
        HttpError: it is not percent-encoded UTF-8.
    """
    if re.search(rb"%(?![0-9a-fA-F]{2})", text):
        raise bad_request("The URL holds a '%' that begins no byte; write %25 for the sign itself.")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise bad_request(
            "The URL is not UTF-8. For keys that are other bytes say key_as=base64."
        ) from None


def bad_request(message: str) -> HttpError:
    """What the client has to write differently."""
    return HttpError(400, "BAD_REQUEST", message)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    parts = [each for each in query.split(b"&") if each]
    if len(parts) > _PARAMETERS_MOST:
        raise bad_request(f"There are more than {_PARAMETERS_MOST} parameters.")
    pairs = []
    for part in parts:
        name, _, text = part.replace(b"+", b" ").partition(b"=")
        pairs.append((decoded(name), decoded(text)))
    return pairs
