"""A stream thread whose components record the calls it makes."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock, Waker
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.loop.uncommitted_work import UncommittedWork
from millstream.runtime.task.time_limits import TimeLimits
from millstream.runtime.thread_control import Close, Command, ReceivedCommand, ThreadOutcome
from millstream.subscriptions.thread_state import SubscriptionThreadState

SETTINGS = ThreadSettings(
    name="thread",
    poll_ms=100,
    commit_interval_ms=100,
    max_poll_records=100,
    max_batch_records=100,
    max_task_idle_ms=0,
)


class Parts:
    """Components of a thread that record their calls.

    Args:
        rounds: for each iteration, the error that the global stores raise, or None.
        commands: the driver's commands before the first iteration.
    """

    def __init__(
        self, *rounds: Exception | None, running: bool = True, commands: tuple[Command, ...] = ()
    ) -> None:
        self.all = Mock()
        self.all.rebalances.handle_next_event.return_value = None
        self.all.rebalances.has_event.return_value = False
        self.all.rebalances.is_rebalancing = False
        self.all.rebalances.blocks_processing = False
        self.all.tasks.running = [Mock(commit_needed=False, partitions=())] if running else []
        self.all.tasks.all = self.all.tasks.standby = ()
        self.all.tasks.inputs.processable.return_value = []
        self.all.tasks.inputs.remaining_capacity = SETTINGS.max_poll_records
        self.all.tasks.next_wall_clock_ms.return_value = None
        self.all.commits.commit.return_value = {}
        self.all.commits.total = self.all.tasks.rebuilt_total = 0
        self.all.consumer.poll_columns.return_value = {}
        self.all.consumer.position.return_value = None
        self.all.updates.step.side_effect = [*rounds, None]
        self.all.updates.is_reading = False
        self.clock = ManualClock()
        #: Answers queries; wakes the thread.
        self.queries = Mock()
        self.waker = Waker()
        #: The connection to the driver.
        self.control = Mock(lost=False, commands=self.commands)
        self._left = len(rounds)
        self._commands = commands

    def commands(self) -> list[Any]:
        """The driver's commands: the last one is to close."""
        self._left -= 1
        self.clock.advance(SETTINGS.commit_interval_ms)
        pending, self._commands = self._commands, ()
        return [ReceivedCommand(command) for command in ((Close(),) if self._left < 0 else pending)]

    def run(self) -> list[str]:
        """Run a thread to its end, which must not fail, and return the names of its calls."""
        outcome = self.outcome()
        assert outcome.error is None
        assert outcome.close_error is None
        return [call[0] for call in self.all.mock_calls]

    def outcome(self) -> ThreadOutcome:
        """Run a thread to its end and return the outcome."""
        parts: Any = self.all
        thread = StreamThread(
            SETTINGS,
            self.control,
            rebalances=parts.rebalances,
            tasks=parts.tasks,
            limits=TimeLimits(self.clock),
            committer=parts.commits,
            uncommitted=UncommittedWork(self.clock, None),
            consumer=parts.consumer,
            producer=parts.producer,
            global_updates=parts.updates,
            incarnations=Mock(outdated=Mock(return_value=[])),
            meters=ThreadMeters("thread", self.clock),
            subscription_state=SubscriptionThreadState(),
            purge=Mock(),
            cleanup=Mock(),
            queries=self.queries,
            resize_memory=parts.resize_memory,
            close_others=[parts.close_others],
            clock=self.clock,
            waker=self.waker,
        )
        return thread.run()


def of(calls: list[str], *names: str) -> list[str]:
    return [name for name in calls if name in names]
