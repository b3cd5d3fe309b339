"""Documents as JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from millstream.application.story.story import ApplicationStory
from millstream.clock import ManualClock
from millstream.errors import StreamsError
from millstream.server.http_error import HttpError
from millstream.server.json_response import as_json


def test_an_error_that_quotes_half_a_character_is_told() -> None:
    """Hunts a console that shows nothing at all as long as such an error is remembered: JSON of
    others has such texts, and UTF-8 has none."""
    story = ApplicationStory(ManualClock(0))
    error = StreamsError("no price for '\ud800'")
    error.__cause__ = KeyError("\udfff")
    story.failed("app-StreamThread-1", error, "REPLACE_THREAD")
    story.step("app-StreamThread-1", "replaced: '\ud800'")
    document: Any = {"failures": story.told().failures, "by name": {"\ud800": (1, None)}}
    told = orjson.loads(as_json(document))
    assert told["failures"][0]["message"] == "no price for '?'"
    assert told["failures"][0]["steps"] == [{"at_ms": 0, "text": "replaced: '?'"}]
    assert told["by name"] == {"?": [1, None]}
    assert orjson.loads(HttpError(400, "BAD_REQUEST", "\ud800").as_response().body) == {
        "error": {"code": "BAD_REQUEST", "message": "?"}
    }


def test_what_is_no_json_is_an_error() -> None:
    """And is not tried again and again."""
    with pytest.raises(TypeError):
        as_json({"key": object()})
