"""Where an answer that comes in pages goes on: told to the client, kept nowhere."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from millstream.server.forms import from_base64, to_base64
from millstream.server.parameters import INTEGER_MOST, bad_request

#: In place of a partition, where a store has none.
WHOLE: Final = -1

_Time = Annotated[int, msgspec.Meta(le=INTEGER_MOST)]


class Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last entry of a page.

    Args:
        question: what was asked, in short: a cursor of one question is none of another.
        partition: in which the entry was; `WHOLE` if the store has none.
        key: its serialized key.
        start_ms: of its window; 0 if it has none.
        end_ms: of its window; 0 if it has none.
        seen: how many entries of that key and window were seen: stores may keep several.
    """

    question: str
    partition: Annotated[int, msgspec.Meta(ge=WHOLE)]
    key: bytes
    start_ms: _Time = 0
    end_ms: _Time = 0
    seen: Annotated[int, msgspec.Meta(ge=1)] = 1

    def written(self) -> str:
        """As a text, for a URL."""
        return to_base64(msgspec.msgpack.encode(self))


def read_cursor(text: str | None, question: str) -> Cursor | None:
    """The cursor that a client gives back.

    Raises:
        HttpError: it is none, or of another question.
    """
    if text is None:
        return None
    try:
        cursor = msgspec.msgpack.decode(from_base64(text), type=Cursor)
    except (ValueError, msgspec.MsgspecError):
        raise bad_request("The cursor is none: give back what the page before had.") from None
    if cursor.question != question:
        raise bad_request("The cursor is of another question: leave it out to begin anew.")
    return cursor
