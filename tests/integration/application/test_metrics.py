"""Metrics of a running application."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import generate_dashboard
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from support.running.word_count import RUNNING, WordCount
from support.waiting import wait_for

from millstream import KafkaStreams, Metrics
from millstream.testing import EmbeddedKafka

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
THREAD, TASK = "stream-thread-metrics", "stream-task-metrics"


def test_metrics_of_threads_and_tasks(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Metrics of threads and tasks match the number of records."""
    app = WordCount(kafka, tmp_path)
    config = app.config(metrics_port=0, metrics_recording_level="DEBUG")
    with KafkaStreams(app.topology(), config, spark) as streams:
        streams.wait_for_state("RUNNING", RUNNING)
        port = streams.metrics_port
        assert port is not None
        app.write_lines(200)
        lines, words = 200, sum(app.expected.values())

        def are_complete() -> bool:
            metrics = streams.metrics()
            # Each of the two threads commits once, shortly after it has processed records.
            is_committed = metrics.total("commit-total", THREAD) >= 2
            return is_committed and metrics.total("process-total", THREAD) == lines + words

        wait_for(are_complete, 60, lambda: f"{lines + words} records: {listed(streams.metrics())}")
        metrics = streams.metrics()
        assert metrics.total("process-total", TASK) == lines + words
        tasks = {each.labels["task-id"] for each in metrics.named("process-total", TASK)}
        assert tasks == {f"{part}_{number}" for part in (0, 1) for number in range(4)}
        threads = {each.labels["thread-id"] for each in metrics.named("commit-total", THREAD)}
        assert len(threads) == 2
        assert metrics.total("task-created-total", THREAD) >= 8
        assert metrics.total("poll-records-max", THREAD) > 0
        assert 0 < metrics.total("process-ratio", THREAD) <= 2
        assert metrics.total("process-rate", THREAD) > 0
        (state,) = metrics.named("client-state")
        assert state.value == 2
        assert metrics.total("records-consumed-total", topic=app.lines) == lines
        assert metrics.total("records-produced-total", topic=app.repartition_topic) == words
        lags = streams.metrics().named("records-lag", topic=app.lines)
        assert {each.labels["partition"]: each.value for each in lags} == dict.fromkeys("0123", 0)
        assert metrics.total("put-rate") == 0, "the DSL bypasses the methods of stores"
        # RocksDB's statistics take the longest: they are read every ten seconds.
        wait_for(
            lambda: streams.metrics().total("bytes-written-total") > 0,
            30,
            "RocksDB statistics are available",
        )
        assert streams.metrics().total("estimate-num-keys") > 0
        scraped: defaultdict[str, float] = defaultdict(float)
        for family in text_string_to_metric_families(scrape(port)):
            for sample in family.samples:
                scraped[sample.name] += sample.value
        assert scraped["kafka_streams_stream_metrics_client_state"] == 2
        used_names = monitored()
        assert len(used_names) > 20
        assert used_names - scraped.keys() == set(), "dashboard and alerts use missing metrics"
        # The counts of a task restart when it moves to the other thread, which may happen at any
        # time.
        assert scraped["kafka_streams_stream_task_metrics_process_total"] > 0
        assert scraped["kafka_streams_stream_thread_metrics_process_total"] == lines + words
        assert streams.close(timedelta(seconds=60))

    with pytest.raises(OSError, match="refused"):
        scrape(port)


def scrape(port: int) -> str:
    """The metrics as Prometheus scrapes them."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def monitored() -> set[str]:
    """The metric names in the dashboard and in the alerts of deploy/monitoring."""
    rules = (MONITORING / "alerts.yaml").read_text(encoding="utf-8")
    queries = [
        target["expr"]
        for panel in generate_dashboard.dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    return set(re.findall(r"\bkafka_streams_\w+", " ".join([rules, *queries])))


def listed(metrics: Metrics) -> str:
    """The metrics as text for assertion messages."""
    return "\n".join(f"{each.name} {dict(each.labels)} {each.value}" for each in metrics)
