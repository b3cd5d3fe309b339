"""The clients of a thread follow the settings."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest
from support.waiting import hang_guard

from millstream.clock import SystemClock, Waker
from millstream.config.streams_config import StreamsConfig
from millstream.errors import BrokerUnavailableError, ConfigError
from millstream.runtime.client_process import ThreadIdentity
from millstream.runtime.thread_clients import ThreadClients


@pytest.fixture
def clients() -> Iterator[ThreadClients]:
    config = StreamsConfig(
        application_id="shop",
        bootstrap_servers="127.0.0.1:9",
        task_timeout_ms=400,
        producer={"max.block.ms": 100, "queue.buffering.max.messages": 1},
    )
    thread_clients = ThreadClients(
        config, ThreadIdentity("shop-1", 1, uuid4()), SystemClock(), False, Waker()
    )
    # There is no broker to return the maximum batch size of the topic.
    thread_clients.producer._max_bytes["out"] = None
    yield thread_clients
    thread_clients.producer.close(0)
    thread_clients.close()


def test_wait_for_a_full_queue_follows_the_settings(
    clients: ThreadClients, caplog: pytest.LogCaptureFixture
) -> None:
    """max.block.ms and task.timeout.ms reach the producer; their defaults are a minute or more."""
    clients.producer.send("out", None, b"k", b"v", 1)
    with (
        hang_guard("the wait"),
        pytest.raises(BrokerUnavailableError, match="queue has been full for") as raised,
    ):
        clients.producer.send("out", None, b"k", b"v", 1)
    waited_s = re.search(r"full for ([0-9.]+) s", str(raised.value))
    assert waited_s is not None
    assert float(waited_s[1]) >= 0.4
    assert sum("waiting for space" in message for message in caplog.messages) >= 2


def test_thread_logs_whether_the_extension_is_used(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the reason if it is not used. Requiring a missing extension raises an error."""
    caplog.set_level(logging.INFO)
    monkeypatch.setitem(sys.modules, "millstream.native.library", None)

    def thread_clients(speedups: bool | None) -> ThreadClients:
        config = StreamsConfig(
            application_id="shop", bootstrap_servers="127.0.0.1:9", speedups=speedups
        )
        identity = ThreadIdentity("shop-1", 1, uuid4())
        return ThreadClients(config, identity, SystemClock(), False, Waker())

    for speedups, reason in (
        (None, "the C extension is not part of this installation"),
        (False, "speedups=False"),
    ):
        caplog.clear()
        thread_clients(speedups).close()
        messages = [line for line in caplog.messages if "records are read and written" in line]
        assert messages == [f"shop-1: records are read and written one by one, since {reason}"]
    with pytest.raises(ConfigError, match="pip install"):
        thread_clients(True)
