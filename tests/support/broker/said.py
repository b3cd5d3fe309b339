"""Messages with any content, for what carries them between a stream thread and its driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.runtime.control import Asked, Command, Question, Report


@dataclass(frozen=True)
class Say(Command):
    """Something that the driver says to a thread."""

    kind: str
    data: Any = None


@dataclass(frozen=True)
class Ask(Question[Any]):
    """Something that it wants to know."""

    kind: str
    data: Any = None


@dataclass(frozen=True)
class Tell(Report):
    """Something that a thread tells."""

    kind: str
    data: Any = None


def said(asked: Asked) -> Say | Ask:
    """What was asked, which is one of these."""
    assert isinstance(asked.command, Say | Ask)
    return asked.command
