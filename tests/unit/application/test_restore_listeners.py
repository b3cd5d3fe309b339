"""The driver requests restore events from its threads only for existing listeners."""

from __future__ import annotations

import io
import sys
import uuid

import pytest

from millstream.app import KafkaStreams
from millstream.config.streams_config import StreamsConfig
from millstream.runtime.task_management.restore_reports import RestoreReportOptions
from millstream.serdes import BYTES
from millstream.topology.dsl.builder import StreamsBuilder


@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("standby", [True, False])
def test_batch_events_are_sent_only_for_listeners(
    restore: bool, standby: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal there are no progress bars; the event log exists in any case."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    builder = StreamsBuilder()
    builder.stream("in", key=BYTES, value=BYTES).to("out")
    streams = KafkaStreams(
        builder.build(), StreamsConfig(application_id="app", bootstrap_servers="127.0.0.1:1")
    )
    if restore:
        streams.set_global_state_restore_listener(object())
    if standby:
        streams.set_standby_update_listener(object())
    supervisor = streams._supervisor
    supervisor._process_id = uuid.UUID(int=1)
    shipped = supervisor._main(1).restore_options
    assert shipped == RestoreReportOptions(
        restore_listener=restore, standby_listener=standby, event_log=True
    )
