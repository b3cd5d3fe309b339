"""Parameters of paths and query strings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from millstream.server.responses import HttpError

#: The maximum of integer parameters: offsets, times and counts.
MAX_INTEGER: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_BOOLEANS: Final = {"true": True, "false": False}
#: The maximum number of query parameters; more than any endpoint has.
_MAX_PARAMETERS: Final = 32


@dataclass(frozen=True)
class Parameter:
    """A parameter of a request. Path parameters are required."""

    name: str
    doc: str
    kind: Literal["string", "integer", "boolean"] = "string"
    default: Any = None
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = MAX_INTEGER
    is_in_path: bool = False
    required: bool = False

    def read(self, text: str) -> Any:
        if self.kind == "integer":
            if _INTEGER.fullmatch(text) and self.minimum <= int(text) <= self.maximum:
                return int(text)
            raise self._invalid(text, f"a number from {self.minimum} to {self.maximum}")
        if self.kind == "boolean":
            if text in _BOOLEANS:
                return _BOOLEANS[text]
            raise self._invalid(text, "true or false")
        if self.choices and text not in self.choices:
            raise self._invalid(text, f"one of {', '.join(self.choices)}")
        return text

    def _invalid(self, text: str, expected: str) -> HttpError:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        return bad_request(f"{self.name} is {shown!r}, but must be {expected}.")


def in_path(name: str, doc: str) -> Parameter:
    return Parameter(name, doc, is_in_path=True, required=True)


def read_query(query: bytes, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Parse the parameters of a query string.

    Missing parameters have their default, which may be None.
    """
    known = {each.name: each for each in parameters if not each.is_in_path}
    values: dict[str, Any] = {}
    for name, text in _pairs(query):
        if name not in known:
            can = f"; the parameters are {', '.join(known)}" if known else ""
            raise bad_request(f"There is no parameter {name[:40]!r}{can}.")
        if name in values:
            raise bad_request(f"{name} is given twice.")
        values[name] = known[name].read(text)
    for each in known.values():
        if each.required and each.name not in values:
            raise bad_request(f"{each.name} is missing: {each.doc}")
    return {name: values.get(name, each.default) for name, each in known.items()}


def decode_part(text: bytes) -> str:
    """Decode a part of a URL.

    Invalid encodings are rejected: replacing them could look up a different key.
    """
    if re.search(rb"%(?![0-9a-fA-F]{2})", text):
        raise bad_request(
            "The URL contains a '%' that is not part of an escape; write %25 for a percent sign."
        )
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise bad_request(
            "The URL is not UTF-8. For keys with other bytes, use key_as=base64."
        ) from None


def bad_request(message: str) -> HttpError:
    return HttpError(400, "BAD_REQUEST", message)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    parts = [each for each in query.split(b"&") if each]
    if len(parts) > _MAX_PARAMETERS:
        raise bad_request(f"There are more than {_MAX_PARAMETERS} parameters.")
    pairs = []
    for part in parts:
        name, _, text = part.replace(b"+", b" ").partition(b"=")
        pairs.append((decode_part(name), decode_part(text)))
    return pairs
