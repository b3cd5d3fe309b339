"""What is wrong with a request, or in the way of an answer, as the client is told."""

from __future__ import annotations

from typing import Any, Final

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
from millstream.server.json_response import JsonResponse


class HttpError(Exception):
    """Ends a request.

    Args:
        status: of the answer.
        code: what it is, for programs: `NOT_FOUND`, `STORE_NOT_READY`.
        message: what it is, why, and what to do, for people.
        retry_after_ms: when to ask again, in milliseconds; None where that is no use.
        headers: of the answer.
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
        """The answer: `{"error": {"code": ..., "message": ...}}`."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        headers = dict(self.headers)
        if self.retry_after_ms is not None:
            error["retry_after_ms"] = self.retry_after_ms
            headers["retry-after"] = str(-(-self.retry_after_ms // 1_000))
        return JsonResponse({"error": error}, self.status, headers)


#: What a client is told of errors of the application, the most special ones first.
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


def http_error_of(error: StreamsError) -> HttpError:
    """What a client is told of an error of the application."""
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            retry_after_ms = getattr(error, "retry_after_ms", None)
            return HttpError(status, code, str(error), retry_after_ms=retry_after_ms)
    return HttpError(503, "UNAVAILABLE", str(error))
