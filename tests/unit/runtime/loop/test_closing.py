"""What a thread does with its tasks when it closes."""

from __future__ import annotations

from unittest.mock import Mock, call

import pytest

from millstream.clock import ManualClock
from millstream.record import TaskId
from millstream.runtime.loop.closing import Closing
from millstream.runtime.loop.commits import UnfinishedError


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_a_task_that_does_not_end_costs_the_others_their_commit_only_in_a_transaction(
    *, all_or_nothing: bool
) -> None:
    slow, quick = Mock(task_id=TaskId(0, 0)), Mock(task_id=TaskId(0, 1))
    tasks, commits = Mock(running=[slow, quick]), Mock(all_or_nothing=all_or_nothing)
    commits.commit.side_effect = [UnfinishedError([slow]), {}]
    as_error = Mock(side_effect=AssertionError)
    closing = Closing(tasks, commits, Mock(), Mock(), (), Mock(), as_error, ManualClock())
    assert closing.close(clean=True) is None
    tried = [each.args[0] for each in commits.commit.call_args_list]
    if all_or_nothing:
        assert tried == [[slow, quick]]
        assert tasks.mock_calls[-2:] == [
            call.close([], clean=False),
            call.close_all(clean=False),
        ]
        commits.forget_sent.assert_called_once()
    else:
        assert tried == [[slow, quick], [quick]]
        assert tasks.mock_calls[-2:] == [
            call.close([slow.task_id], clean=False),
            call.close_all(clean=True),
        ]
        commits.forget_sent.assert_not_called()
