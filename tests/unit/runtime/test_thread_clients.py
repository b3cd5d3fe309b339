"""The clients of a thread do what the settings say."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.errors import BrokerUnavailableError, ConfigError
from millstream.runtime.thread_clients import ThreadClients
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.waker import Waker


@pytest.fixture
def clients() -> Iterator[ThreadClients]:
    config = StreamsConfig(
        application_id="shop",
        bootstrap_servers="127.0.0.1:9",
        task_timeout_ms=400,
        producer={"max.block.ms": 100, "queue.buffering.max.messages": 1},
    )
    opened = ThreadClients(
        config, ThreadIdentity("shop-1", 1, uuid4()), SystemClock(), False, Waker()
    )
    # No broker is there to tell how large a batch the topic takes.
    opened.producer._most_bytes["out"] = None
    yield opened
    opened.producer.close(0)
    opened.close()


def test_a_full_queue_is_waited_out_by_the_settings(
    clients: ThreadClients, caplog: pytest.LogCaptureFixture
) -> None:
    """Aim: max.block.ms and task.timeout.ms reach the producer."""
    clients.producer.send("out", None, b"k", b"v", 1)
    began = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match="queue has been full for"):
        clients.producer.send("out", None, b"k", b"v", 1)
    assert 0.4 <= time.monotonic() - began < 5
    assert sum("waits for room" in message for message in caplog.messages) >= 2


def test_a_thread_says_how_records_go(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the reason where the C extension is not used; who insists on it is refused."""
    caplog.set_level(logging.INFO)
    monkeypatch.setitem(sys.modules, "millstream_speedups", None)

    def opened(speedups: bool | None) -> ThreadClients:
        config = StreamsConfig(
            application_id="shop", bootstrap_servers="127.0.0.1:9", speedups=speedups
        )
        identity = ThreadIdentity("shop-1", 1, uuid4())
        return ThreadClients(config, identity, SystemClock(), False, Waker())

    for speedups, why in (
        (None, "millstream-speedups is not installed"),
        (False, "speedups=False"),
    ):
        caplog.clear()
        opened(speedups).close()
        told = [line for line in caplog.messages if "records are read and written" in line]
        assert told == [f"shop-1: records are read and written one by one, since {why}"]
    with pytest.raises(ConfigError, match="pip install"):
        opened(True)
