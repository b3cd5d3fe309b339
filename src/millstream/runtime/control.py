"""What a stream thread and its driver say to each other, whatever carries it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.errors import StreamsError


class Command(Protocol):
    """Something the driver asks of the thread."""

    @property
    def kind(self) -> str:
        """`close`, `pause`, `resume` or `metrics`."""
        ...

    @property
    def data(self) -> Any: ...


class Control(Protocol):
    """The thread's end of the connection to its driver."""

    @property
    def lost(self) -> bool:
        """Whether the driver has been unreachable for longer than the grace period."""
        ...

    @property
    def lost_reason(self) -> str | None:
        """What was tried and for how long, or why the driver does not want it; None if not lost."""
        ...

    def report(self, kind: str, data: Any) -> None:
        """Tell the driver something, without waiting for it."""
        ...

    def commands(self) -> Sequence[Command]:
        """What the driver has asked since the last call."""
        ...

    def reply(self, command: Any, data: Any) -> None:
        """Answer a command that wants an answer."""
        ...


@dataclass(frozen=True)
class ThreadOutcome:
    """How a stream thread ended.

    Args:
        error: what made it stop; None if it was asked to.
        story: its last changes of state, oldest first.
        close_error: the first thing that went wrong while it closed.
    """

    error: StreamsError | None = None
    story: list[str] = field(default_factory=list)
    close_error: StreamsError | None = None
