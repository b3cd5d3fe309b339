"""Documents as JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from millstream.application.event_log.event_log import EventLog
from millstream.clock import ManualClock
from millstream.errors import StreamsError
from millstream.server.responses import HttpError, as_json


def test_an_error_with_a_lone_surrogate_is_encoded() -> None:
    """Detects a console that is empty while the event log contains such an error: JSON allows
    lone surrogates, UTF-8 does not."""
    event_log = EventLog(ManualClock(0))
    error = StreamsError("no price for '\ud800'")
    error.__cause__ = KeyError("\udfff")
    event_log.add_failure("app-StreamThread-1", error, "REPLACE_THREAD")
    event_log.add_step("app-StreamThread-1", "replaced: '\ud800'")
    document: Any = {"failures": event_log.snapshot().failures, "by name": {"\ud800": (1, None)}}
    decoded = orjson.loads(as_json(document))
    assert decoded["failures"][0]["message"] == "no price for '?'"
    assert decoded["failures"][0]["steps"] == [{"at_ms": 0, "text": "replaced: '?'"}]
    assert decoded["by name"] == {"?": [1, None]}
    assert orjson.loads(HttpError(400, "BAD_REQUEST", "\ud800").as_response().body) == {
        "error": {"code": "BAD_REQUEST", "message": "?"}
    }


def test_unsupported_types_raise_an_error() -> None:
    """The error is not hidden by the second attempt, which replaces lone surrogates."""
    with pytest.raises(TypeError):
        as_json({"key": object()})
