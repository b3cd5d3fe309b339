"""HTTP errors and their JSON responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import orjson
from starlette.responses import Response

from millstream.errors import (
    IllegalStateError,
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    SerializationError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsError,
    StreamsNotStartedError,
    StreamsStoppedError,
    UnknownStateStoreError,
)

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return as_json(content)


def as_json(document: Any) -> bytes:
    """Encode a document as JSON in UTF-8, on one line."""
    try:
        return orjson.dumps(document, None, _OPTIONS)
    except orjson.JSONEncodeError:
        # Texts quoted in errors may contain lone surrogates, which UTF-8 cannot encode.
        return orjson.dumps(_replace_surrogates(document), None, _OPTIONS)


def _replace_surrogates(part: Any) -> Any:
    if isinstance(part, str):
        return part.encode(errors="replace").decode()
    if isinstance(part, Mapping):
        return {_replace_surrogates(name): _replace_surrogates(each) for name, each in part.items()}
    if isinstance(part, list | tuple):
        return [_replace_surrogates(each) for each in part]
    if is_dataclass(part):
        return {each.name: _replace_surrogates(getattr(part, each.name)) for each in fields(part)}
    return part


class HttpError(Exception):
    """An error that ends a request.

    Without `retry_after_ms`, retries would fail again.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_after_ms: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.headers = headers or {}

    def as_response(self) -> Response:
        """Return the response: `{"error": {"code": ..., "message": ...}}`."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        headers = dict(self.headers)
        if self.retry_after_ms is not None:
            error["retry_after_ms"] = self.retry_after_ms
            headers["retry-after"] = str(-(-self.retry_after_ms // 1_000))
        return JsonResponse({"error": error}, self.status, headers)


#: The status and code of application errors, the most specific classes first.
_CODES: Final[tuple[tuple[type[StreamsError], int, str], ...]] = (
    (UnknownStateStoreError, 404, "UNKNOWN_STATE_STORE"),
    (InvalidStateStorePartitionError, 404, "UNKNOWN_PARTITION"),
    (StateStoreNotAvailableError, 503, "STORE_NOT_READY"),
    (StateStoreMigratedError, 503, "STORE_MOVED"),
    (StreamsNotStartedError, 503, "NOT_STARTED"),
    (StreamsStoppedError, 503, "NOT_RUNNING"),
    (IllegalStateError, 503, "NOT_RUNNING"),
    (InvalidStateStoreError, 503, "STORE_FAILED"),
    (SerializationError, 500, "SERIALIZATION_ERROR"),
)


def to_http_error(error: StreamsError) -> HttpError:
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            retry_after_ms = getattr(error, "retry_after_ms", None)
            return HttpError(status, code, str(error), retry_after_ms=retry_after_ms)
    return HttpError(503, "UNAVAILABLE", str(error))
