"""The keys of tasks, as Decaton's own client writes them."""

from __future__ import annotations

from typing import Any, Final

from millstream.errors import SerializationError
from millstream.serdes import Serde
from millstream.serdes._serde import shown

_LEAST: Final = 32
_MOST: Final = 126


def _written(topic: str, key: Any) -> bytes:
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise SerializationError(
            f"The key of a task must be text, bytes or None, but is {shown(key)}. Give the "
            "TaskProducer a serde for other keys: key=LONG, for example.",
            topic=topic,
        )
    if not all(_LEAST <= ord(character) <= _MOST for character in key):
        raise SerializationError(
            f"The key {shown(key)} has characters that are no printable ASCII, which Decaton's "
            "client refuses. Give the TaskProducer key=STRING to write it in UTF-8 all the same.",
            topic=topic,
        )
    return key.encode("ascii")


def _read(topic: str, data: bytes) -> Any:
    return data


#: Text of printable ASCII, as Decaton's `PrintableAsciiStringSerializer` takes it, and bytes as
#: they are.
TASK_KEY: Final[Serde[Any]] = Serde(_written, _read, immutable=True, name="TASK_KEY")
