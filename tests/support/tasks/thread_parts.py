"""A stream thread whose parts note what it does to them."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from millstream.clock import ManualClock
from millstream.runtime.control import Asked, Close, Command, ThreadOutcome
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.task.time_limits import TimeLimits
from millstream.subscriptions.share import SubscriptionShare
from millstream.waker import Waker

SETTINGS = ThreadSettings(
    name="thread",
    poll_ms=100,
    commit_interval_ms=100,
    max_poll_records=100,
    max_batch_records=100,
    max_task_idle_ms=0,
)


class Parts:
    """Parts of a thread that note their calls.

    Args:
        rounds: what the global stores do in each round: raise that error, or nothing.
        running: whether a task runs.
        commands: what the driver says before the first round.
    """

    def __init__(
        self, *rounds: Exception | None, running: bool = True, commands: tuple[Command, ...] = ()
    ) -> None:
        self.all = Mock()
        self.all.rebalances.next_change.return_value = None
        self.all.rebalances.has_news.return_value = False
        self.all.rebalances.under_way = False
        self.all.rebalances.forbids_work = False
        self.all.tasks.running = [Mock(commit_needed=False, partitions=())] if running else []
        self.all.tasks.all = self.all.tasks.standby = ()
        self.all.tasks.processable.return_value = []
        self.all.tasks.input_room = SETTINGS.max_poll_records
        self.all.tasks.next_wall_clock_ms.return_value = None
        self.all.commits.commit.return_value = {}
        self.all.commits.total = self.all.tasks.rebuilt_total = 0
        self.all.consumer.poll_columns.return_value = {}
        self.all.consumer.position.return_value = None
        self.all.updates.step.side_effect = [*rounds, None]
        self.all.updates.is_reading = False
        self.clock = ManualClock()
        #: What answers questions, and what wakes the thread.
        self.queries = Mock()
        self.waker = Waker()
        #: The connection to the driver.
        self.control = Mock(lost=False, commands=self.commands)
        self._left = len(rounds)
        self._commands = commands

    def commands(self) -> list[Any]:
        """What the driver says: in the end to close."""
        self._left -= 1
        self.clock.advance(SETTINGS.commit_interval_ms)
        said, self._commands = self._commands, ()
        return [Asked(command) for command in ((Close(),) if self._left < 0 else said)]

    def run(self) -> list[str]:
        """Run a thread to its end; what it did to its parts. It must not fail."""
        outcome = self.outcome()
        assert outcome.error is None
        assert outcome.close_error is None
        return [call[0] for call in self.all.mock_calls]

    def outcome(self) -> ThreadOutcome:
        """Run a thread to its end; how it ended."""
        parts: Any = self.all
        thread = StreamThread(
            SETTINGS,
            self.control,
            rebalances=parts.rebalances,
            tasks=parts.tasks,
            limits=TimeLimits(self.clock),
            commits=parts.commits,
            uncommitted=UncommittedWork(self.clock, None),
            consumer=parts.consumer,
            producer=parts.producer,
            global_updates=parts.updates,
            incarnations=Mock(outdated=Mock(return_value=[])),
            meters=ThreadMeters("thread", self.clock),
            share=SubscriptionShare(),
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
