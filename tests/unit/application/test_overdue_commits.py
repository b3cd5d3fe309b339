"""Overdue commits of a thread are shown in the health check, the console and the log."""

from __future__ import annotations

import logging

import pytest
from support.http_client import HttpClient
from support.running.topologies.console_sample import THREADS, Sample

from millstream.clock import ManualClock
from millstream.runtime.thread_control import CommitsOverdue
from millstream.spark.thread_events import ThreadEvent


def test_overdue_commits_show_in_health_the_console_and_the_log(
    tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The instance is ready again after the next commit. It stays live, so that it is not
    restarted."""
    sample = Sample(ManualClock(1_700_000_000_000), str(tmp_path))
    sample.play_history()
    streams, thread = sample.streams, THREADS[0]
    on_event = streams._supervisor._on_event
    try:
        client = HttpClient(streams.serve())
        assert client.request("/health/ready")[0] == 200
        with caplog.at_level(logging.WARNING):
            on_event(ThreadEvent(thread, "report", CommitsOverdue(70_000)))
        assert "has processed records for 70 s without a commit" in caplog.text
        status, answer = client.request("/health/ready")
        assert status == 503
        assert f"{thread} processed records without a commit" in answer["why"]
        assert client.request("/health/live")[0] == 200
        shown = {each["name"]: each for each in client.get("console", "state")["threads"]}
        assert shown[thread]["uncommitted_ms"] == 70_000
        assert shown[THREADS[1]]["uncommitted_ms"] is None
        by_name = {each.thread_name: each for each in streams.metadata_for_local_threads()}
        assert by_name[thread].uncommitted_ms == 70_000
        on_event(ThreadEvent(thread, "report", CommitsOverdue(None)))
        assert client.request("/health/ready")[0] == 200
    finally:
        streams.close()
