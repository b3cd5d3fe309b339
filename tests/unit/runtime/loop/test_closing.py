"""Closing a thread's tasks."""

from __future__ import annotations

from unittest.mock import Mock, call

import pytest

from millstream.clock import ManualClock
from millstream.record import TaskId
from millstream.runtime.loop.commits import TasksInFlightError
from millstream.runtime.loop.thread_closer import ThreadCloser


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_unfinished_task_prevents_the_commit_of_others_only_in_a_transaction(
    *, all_or_nothing: bool
) -> None:
    slow, quick = Mock(task_id=TaskId(0, 0)), Mock(task_id=TaskId(0, 1))
    tasks, commits = Mock(running=[slow, quick]), Mock(all_or_nothing=all_or_nothing)
    commits.commit.side_effect = [TasksInFlightError([slow]), {}]
    as_error = Mock(side_effect=AssertionError)
    closer = ThreadCloser(tasks, commits, Mock(), Mock(), (), Mock(), as_error, ManualClock())
    assert closer.close(clean=True) is None
    attempts = [each.args[0] for each in commits.commit.call_args_list]
    if all_or_nothing:
        assert attempts == [[slow, quick]]
        assert tasks.mock_calls[-2:] == [
            call.close([], clean=False),
            call.close_all(clean=False),
        ]
        commits.discard_uncommitted.assert_called_once()
    else:
        assert attempts == [[slow, quick], [quick]]
        assert tasks.mock_calls[-2:] == [
            call.close([slow.task_id], clean=False),
            call.close_all(clean=True),
        ]
        commits.discard_uncommitted.assert_not_called()
