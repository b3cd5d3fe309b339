"""What consoles that follow are told: the document once, then the parts of it that change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from millstream.server.json_response import as_json
from millstream.server.served import Served
from millstream.server.workers import Workers

#: How old what is told may be.
_FRESH_S: Final = 0.8

#: The parts of a document as JSON, by their names: those of parts that are objects one by one.
Parts = Mapping[tuple[str, ...], bytes]


class ConsoleFeed:
    """The document of now, made once for all who follow, and only while somebody does.

    Used on the server's event loop.

    Args:
        served: what is shown.
        workers: what the document is made on.
    """

    def __init__(self, served: Served, workers: Workers) -> None:
        self._served = served
        self._workers = workers
        self._making = asyncio.Lock()
        self._parts: Parts = {}
        self._made_at = float("-inf")

    async def parts(self) -> Parts:
        """The parts, at most a second old.

        Raises:
            HttpError: there is no thread, or no time, to make them.
        """
        async with self._making:
            if time.monotonic() - self._made_at > _FRESH_S:
                self._parts = await self._workers.run(self._make)
                self._made_at = time.monotonic()
            return self._parts

    def _make(self) -> Parts:
        parts: dict[tuple[str, ...], bytes] = {}
        for name, part in self._served.console_state().items():
            if isinstance(part, Mapping):
                parts |= {(name, inner): as_json(each) for inner, each in part.items()}
            else:
                parts[name,] = as_json(part)
        return parts


def event_of(before: Parts | None, now: Parts) -> bytes:
    """The event by which one who knows `before` comes to know `now`; empty if nothing differs.

    It is a `state` with all of it, or a `change` with what differs: a part takes the place of the
    one before, and what is in an object that of what was in there under its name.
    """
    if before is None or before.keys() != now.keys():
        return b"event: state\ndata: " + _joined(now) + b"\n\n"
    # Who is told each second mostly knows the very same objects.
    changed = {name: part for name, part in now.items() if part != before[name]}
    return b"event: change\ndata: " + _joined(changed) + b"\n\n" if changed else b""


def _joined(parts: Parts) -> bytes:
    document: dict[str, Any] = {}
    for (name, *inner), part in parts.items():
        if inner:
            document.setdefault(name, {})[inner[0]] = orjson.Fragment(part)
        else:
            document[name] = orjson.Fragment(part)
    return as_json(document)
