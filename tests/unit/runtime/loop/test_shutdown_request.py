"""The shutdown request of a failed thread before it leaves the group."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, ShutdownRequestedError
from millstream.runtime.loop.thread_closer import ShutdownRequester
from millstream.runtime.thread_control import (
    Close,
    Command,
    ReceivedCommand,
    RequestShutdown,
    ThreadFailed,
)


class FailedThread:
    """A failed thread, with its driver and its group.

    Args:
        commands: the driver's commands, one for each poll; None stands for no command.
        changes: the group's events, or an exception that the group raises.
    """

    def __init__(self, *commands: Command | None, changes: Any = None) -> None:
        received = [() if each is None else (ReceivedCommand(each),) for each in commands]
        self.control = Mock(lost=False)
        self.control.commands.side_effect = lambda: received.pop(0) if received else ()
        self.rebalances = Mock()
        self.rebalances.handle_next_event.side_effect = changes or (lambda: None)
        self.clock = ManualClock()
        ShutdownRequester(self.control, self.rebalances, self.clock).run()
        self.took_ms = self.clock.monotonic_ms()


def test_replaced_thread_leaves_at_once() -> None:
    thread = FailedThread(None, Close())
    assert thread.took_ms == 20
    thread.rebalances.request_shutdown.assert_not_called()


def test_thread_without_a_command_leaves_after_a_timeout() -> None:
    assert FailedThread().took_ms <= 2_100


def test_thread_that_requests_shutdown_stays_until_the_group_answers() -> None:
    """Detects tasks that move to other instances together with the record that fails them."""
    answer = ShutdownRequestedError("requested")
    thread = FailedThread(RequestShutdown("poison"), changes=[None, Mock(), None, answer])
    thread.rebalances.request_shutdown.assert_called_once_with("poison")
    thread.control.report.assert_called_once_with(ThreadFailed(answer))
    assert thread.rebalances.progress.called


def test_unanswered_shutdown_request_times_out() -> None:
    """Another thread then repeats the request."""
    thread = FailedThread(RequestShutdown("poison"))
    assert 10_000 <= thread.took_ms <= 10_100
    assert not FailedThread(
        RequestShutdown("poison"), changes=BrokerUnavailableError("away")
    ).control.report.called
