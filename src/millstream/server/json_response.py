"""Answers in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS


class JsonResponse(Response):
    """A document as JSON, in UTF-8."""

    media_type = "application/json"

    def __init__(
        self, content: Any, status_code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(content, status_code, headers)

    def render(self, content: Any) -> bytes:
        """The bytes of a document."""
        return as_json(content)


def as_json(document: Any) -> bytes:
    """A document as JSON, in UTF-8, on one line.

    Raises:
        TypeError: there is something in it of which JSON knows nothing.
    """
    try:
        return orjson.dumps(document, None, _OPTIONS)
    except orjson.JSONEncodeError:
        # What errors quote may hold halves of characters, which UTF-8 has not.
        return orjson.dumps(_of_whole_characters(document), None, _OPTIONS)


def _of_whole_characters(part: Any) -> Any:
    if isinstance(part, str):
        return part.encode(errors="replace").decode()
    if isinstance(part, Mapping):
        return {
            _of_whole_characters(name): _of_whole_characters(each) for name, each in part.items()
        }
    if isinstance(part, list | tuple):
        return [_of_whole_characters(each) for each in part]
    if is_dataclass(part):
        return {each.name: _of_whole_characters(getattr(part, each.name)) for each in fields(part)}
    return part
