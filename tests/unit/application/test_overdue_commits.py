"""An application whose thread processes records without a commit says so everywhere."""

from __future__ import annotations

import logging

import pytest
from support.http_client import HttpClient
from support.running.topologies.console_sample import THREADS, Sample

from millstream.clock import ManualClock
from millstream.runtime.control import CommitsOverdue
from millstream.spark.events import ThreadEvent


def test_overdue_commits_are_seen_in_health_the_console_and_the_log(
    tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    """And so is that the thread commits again. It is not to be killed for it: it stays alive."""
    sample = Sample(ManualClock(1_700_000_000_000), str(tmp_path))
    sample.go_through_much()
    streams, thread = sample.streams, THREADS[0]
    tell = streams._supervisor._on_event
    try:
        client = HttpClient(streams.serve())
        assert client.ask("/health/ready")[0] == 200
        with caplog.at_level(logging.WARNING):
            tell(ThreadEvent(thread, "report", CommitsOverdue(70_000)))
        assert "has processed records for 70 s without a commit" in caplog.text
        status, answer = client.ask("/health/ready")
        assert status == 503
        assert f"{thread} processed records without a commit" in answer["why"]
        assert client.ask("/health/live")[0] == 200
        shown = {each["name"]: each for each in client.get("console", "state")["threads"]}
        assert shown[thread]["uncommitted_ms"] == 70_000
        assert shown[THREADS[1]]["uncommitted_ms"] is None
        found = {each.thread_name: each for each in streams.metadata_for_local_threads()}
        assert found[thread].uncommitted_ms == 70_000
        tell(ThreadEvent(thread, "report", CommitsOverdue(None)))
        assert client.ask("/health/ready")[0] == 200
    finally:
        streams.close()
