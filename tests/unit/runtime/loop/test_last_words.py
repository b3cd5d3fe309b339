"""What a failed thread does before it leaves the group."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, ShutdownRequestedError
from millstream.runtime.control import Asked, AskForShutdown, Close, Command, ThreadFailed
from millstream.runtime.loop.last_words import LastWords


class Dying:
    """A thread that has failed, its driver, and its place in the group.

    Args:
        verdicts: what the driver says, at each time that it is asked.
        changes: what the group brings then, or raises.
    """

    def __init__(self, *verdicts: Command | None, changes: Any = None) -> None:
        said = [() if each is None else (Asked(each),) for each in verdicts]
        self.control = Mock(lost=False)
        self.control.commands.side_effect = lambda: said.pop(0) if said else ()
        self.rebalances = Mock()
        self.rebalances.next_change.side_effect = changes or (lambda: None)
        self.clock = ManualClock()
        LastWords(self.control, self.rebalances, self.clock).say()
        self.took_ms = self.clock.monotonic_ms()


def test_one_that_is_replaced_leaves_as_soon_as_it_knows() -> None:
    dying = Dying(None, Close())
    assert dying.took_ms == 20
    dying.rebalances.ask_for_shutdown.assert_not_called()


def test_one_whose_driver_says_nothing_leaves_in_the_end() -> None:
    assert Dying().took_ms <= 2_100


def test_one_that_is_to_tell_all_stays_until_the_group_answers() -> None:
    """Hunts for tasks that go to other instances with the record that is poison."""
    answer = ShutdownRequestedError("told")
    dying = Dying(AskForShutdown("poison"), changes=[None, Mock(), None, answer])
    dying.rebalances.ask_for_shutdown.assert_called_once_with("poison")
    dying.control.report.assert_called_once_with(ThreadFailed(answer))
    assert dying.rebalances.progress.called


def test_one_that_gets_no_answer_leaves_in_the_end() -> None:
    """Another thread asks in its place."""
    dying = Dying(AskForShutdown("poison"))
    assert 10_000 <= dying.took_ms <= 10_100
    assert not Dying(
        AskForShutdown("poison"), changes=BrokerUnavailableError("away")
    ).control.report.called
