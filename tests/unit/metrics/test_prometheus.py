"""The text exposition format, read by Prometheus' own parser."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.odd_requests import answer_to
from support.waiting import wait_for

from millstream.application.client_metrics import MetricsPort
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.export.prometheus import PrometheusPort, prometheus_registry, prometheus_text
from millstream.export.scrape_server import ScrapeServer
from millstream.metrics.values import Metric, Metrics


def test_a_scrape_contains_the_metrics() -> None:
    """Names, labels with special characters, texts, missing values, and types."""
    odd = 'a"b\\c\nd'
    metrics = Metrics(
        [
            Metric("process-total", {"thread-id": "t1"}, 3.0, "stream-thread-metrics"),
            Metric("process-total", {"thread-id": odd}, 4.0, "stream-thread-metrics"),
            Metric("process-rate", {"thread-id": "t1"}, math.nan, "stream-thread-metrics"),
            Metric("state", {"thread-id": "t1"}, "RUNNING", "stream-thread-metrics"),
            Metric("topology-description", {}, "Topologies: …", "stream-metrics"),
            Metric("restore-remaining-records-total", {}, 9.0, "stream-task-metrics"),
            Metric("tasks.pending", {"topic": "emails"}, 12.0, "subscription-metrics"),
        ]
    )
    families = {
        each.name: each for each in text_string_to_metric_families(prometheus_text(metrics))
    }
    prefix = "kafka_streams_stream_thread_metrics_"
    assert {name: each.type for name, each in families.items()} == {
        f"{prefix}process": "counter",
        f"{prefix}process_rate": "gauge",
        f"{prefix}state_info": "gauge",
        "kafka_streams_stream_task_metrics_restore_remaining_records_total": "gauge",
        "decaton_tasks_pending": "gauge",
    }
    total = families[f"{prefix}process"].samples
    assert [(each.name, each.labels, each.value) for each in total] == [
        (f"{prefix}process_total", {"thread_id": odd}, 4.0),
        (f"{prefix}process_total", {"thread_id": "t1"}, 3.0),
    ]
    (state,) = families[f"{prefix}state_info"].samples
    assert (state.labels, state.value) == ({"thread_id": "t1", "value": "RUNNING"}, 1.0)


def test_the_error_of_a_used_port_names_the_setting() -> None:
    with PrometheusPort("127.0.0.1", 0, lambda: Metrics([])) as first:
        config = StreamsConfig(
            application_id="shop",
            bootstrap_servers="not-used:9092",
            metrics_port=first.port,
        )
        with pytest.raises(ConfigError, match=f"127.0.0.1:{first.port}.*metrics_port"):
            MetricsPort(config, lambda: Metrics([])).open()


def test_the_port_is_closed_by_default_and_local_if_enabled() -> None:
    config = StreamsConfig(application_id="shop", bootstrap_servers="not-used:9092")
    port = MetricsPort(config, lambda: Metrics([]))
    port.open()
    assert port.port is None
    assert config.metrics_host == "127.0.0.1"


def test_colliding_names_are_kept_apart() -> None:
    """Otherwise a sample would be lost. The names of existing series must not change."""
    group = "stream-user-metrics"
    first = Metric("a_b", {"task-id": "0_0"}, 1.0, group)
    others = [
        Metric("a-b", {"task-id": "0_0"}, 2.0, group),
        Metric("a-b-total", {"task-id": "0_0"}, 3.0, group),
        Metric("mode", {"value": "x", "a-b": "1", "a.b": "2", "1st": "y", "__s": "z"}, "on", group),
    ]
    there = [first]
    registry = prometheus_registry(lambda: Metrics(there))

    def read_samples() -> dict[str, dict[str, str | float]]:
        families = text_string_to_metric_families(generate_latest(registry).decode())
        return {
            one.name.removeprefix("kafka_streams_stream_user_metrics_"): {
                **one.labels,
                "=": one.value,
            }
            for family in families
            for one in family.samples
        }

    task = {"task_id": "0_0"}
    assert read_samples() == {"a_b": {**task, "=": 1.0}}
    there += others
    for _ in range(2):
        found = read_samples()
        assert found.pop("mode_info") == {
            "value": "on",
            "value_2": "x",
            "a_b": "1",
            "a_b_2": "2",
            "_1st": "y",
            "_s": "z",
            "=": 1.0,
        }
        assert found == {
            "a_b": {**task, "=": 1.0},
            "a_b_2": {**task, "=": 2.0},
            "a_b_3_total": {**task, "=": 3.0},
        }
    there.remove(first)
    assert read_samples().keys() == {"a_b_2", "a_b_3_total", "mode_info"}


def test_idle_connections_are_limited() -> None:
    """The port needs no token, so its clients must not use up the driver's threads."""

    def answer(environ: object, start_response: Callable[..., object]) -> list[bytes]:
        start_response("200 OK", [])
        return [b"metrics"]

    server = ScrapeServer("127.0.0.1", 0, answer, max_requests=3, request_timeout_s=1.5)
    try:
        port = server.server_port
        before = threading.active_count()
        silent = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(40)]
        # Connections above the limit are closed immediately, and the three after their timeout.
        slow = silent[0]
        assert [each.recv(1) for each in silent[3:]] == [b""] * 37
        assert threading.active_count() - before <= 3
        wait_for(lambda: not _is_open(slow), 10, "the slow connection is closed")
        wait_for(lambda: scrape_status(port, "localhost") == 200, 10, "a scrape succeeds again")
        for each in silent:
            each.close()
    finally:
        server.close()


def _is_open(slow: socket.socket) -> bool:
    try:
        slow.sendall(b"x")
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def scrape_status(port: int, host: str) -> int | None:
    """The status of a scrape with a host name of this machine."""
    request = f"GET /metrics HTTP/1.0\r\nhost: {host}:{port}\r\n\r\n"
    return answer_to(port, request.encode(), 5)


def test_unknown_host_names_are_rejected() -> None:
    """A website can resolve its own name to this machine (DNS rebinding)."""
    with PrometheusPort("127.0.0.1", 0, lambda: Metrics([])) as prometheus:
        answers = {
            name: scrape_status(prometheus.port, name)
            for name in (
                "localhost",
                "127.0.0.1",
                "[::1]",
                "evil.example",
                "127.0.0.1.evil.example",
            )
        }
        assert answers == {
            "localhost": 200,
            "127.0.0.1": 200,
            "[::1]": 200,
            "evil.example": 403,
            "127.0.0.1.evil.example": 403,
        }
    with PrometheusPort("0.0.0.0", 0, lambda: Metrics([])) as prometheus:
        assert scrape_status(prometheus.port, "metrics.example") == 200
