"""Messages with any content for tests of the control connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.runtime.thread_control import Command, ReceivedCommand, Report, ThreadRequest


@dataclass(frozen=True)
class SampleCommand(Command):
    """A command of the driver."""

    kind: str
    data: Any = None


@dataclass(frozen=True)
class SampleRequest(ThreadRequest[Any]):
    """A request of the driver."""

    kind: str
    data: Any = None


@dataclass(frozen=True)
class SampleReport(Report):
    """A report of a thread."""

    kind: str
    data: Any = None


def sample_command(received: ReceivedCommand) -> SampleCommand | SampleRequest:
    """The command of a received message."""
    assert isinstance(received.command, SampleCommand | SampleRequest)
    return received.command
