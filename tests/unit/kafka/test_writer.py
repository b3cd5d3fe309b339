"""Sending records one by one."""

from __future__ import annotations

from typing import Any

from millstream.kafka.clients.writer import written_times


def test_only_the_timestamp_0_is_replaced() -> None:
    """An invalid timestamp next to it is rejected by the client, as without it."""
    timestamps: list[Any] = [0, 5, None, ""]
    assert written_times(timestamps) == [1, 5, None, ""]
