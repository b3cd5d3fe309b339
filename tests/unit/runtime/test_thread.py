"""The rounds of a stream thread."""

from __future__ import annotations

from support.thread_parts import Parts, of

from millstream.errors import TaskCorruptedError, TaskMigratedError
from millstream.record import TaskId


def test_a_paused_thread_commits_what_it_has_done() -> None:
    """It reads and processes nothing more."""
    parts = Parts(None, None, commands=("pause",))
    calls = of(parts.run(), "commits.commit", "consumer.poll_columns", "tasks.advance")
    # In two rounds, in the one in which it is told to close, and at last.
    assert calls == ["commits.commit"] * 4


def test_what_was_sent_is_in_the_changelog_before_a_task_is_restored_from_it() -> None:
    corrupted = TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)])
    calls = Parts(corrupted, None).run()
    assert of(calls, "commits.settle", "tasks.revive") == ["commits.settle", "tasks.revive"]


def test_a_thread_that_is_fenced_while_it_waits_for_that_joins_anew() -> None:
    parts = Parts(TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)]), None)
    parts.all.commits.settle.side_effect = TaskMigratedError("fenced")
    calls = of(parts.run(), "tasks.revive", "rebalances.drop_work", "rebalances.rejoin")
    assert calls == ["rebalances.drop_work", "rebalances.rejoin"]
