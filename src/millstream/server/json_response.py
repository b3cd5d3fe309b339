"""Answers in JSON."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


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
    """A document as JSON, in UTF-8, on one line."""
    return orjson.dumps(document, None, orjson.OPT_NON_STR_KEYS)
