"""What a commit waits for."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.runtime.commits import Commits


@pytest.mark.parametrize("commit_needed", [True, False])
def test_what_was_sent_since_the_last_commit_is_waited_for(commit_needed: bool) -> None:
    """With nothing sent, a cluster that does not answer holds nobody up."""
    producer = Mock()
    commits = Commits(producer, Mock(), ManualClock(), timeout_ms=7_000)
    commits.settle([Mock(commit_needed=False), Mock(commit_needed=commit_needed)])
    if commit_needed:
        producer.flush.assert_called_once_with(7_000)
    else:
        producer.flush.assert_not_called()
