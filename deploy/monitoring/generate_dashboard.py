"""Writes dashboard.json for Grafana, with the Prometheus metrics.

    python deploy/monitoring/generate_dashboard.py            # write the file
    python deploy/monitoring/generate_dashboard.py --check    # exit code 1 if it is out of date

A test checks that applications report all metrics that are used here and in alerts.yaml.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).with_name("dashboard.json")

_CLIENT = "kafka_streams_stream_metrics_"
_THREAD = "kafka_streams_stream_thread_metrics_"
_TASK = "kafka_streams_stream_task_metrics_"
_STATE = "kafka_streams_stream_state_metrics_"
_UPDATER = "kafka_streams_stream_state_updater_metrics_"
_NODE = "kafka_streams_stream_processor_node_metrics_"
_OWN = "kafka_streams_millstream_thread_metrics_"
_LAG = "kafka_streams_consumer_fetch_manager_metrics_records_lag"

#: Selects the applications and instances that are chosen at the top of the dashboard.
_SELECTOR = '{job=~"$job",instance=~"$instance"}'
_COLUMNS, _WIDE, _HIGH = 24, 8, 8


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart.

    Attributes:
        queries: pairs of a legend and a PromQL query.
        unit: Grafana's name of the unit.
    """

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    about: str = ""


def _of(metric: str) -> str:
    return f"{metric}{_SELECTOR}"


#: The rows of the page and their charts, from symptoms to causes.
ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Health",
        (
            Panel(
                "Stream threads",
                [
                    ("alive", f"sum({_of(_CLIENT + 'alive_stream_threads')})"),
                    ("failed", f"sum({_of(_CLIENT + 'failed_stream_threads')})"),
                ],
                about="Failed threads are counted since the start of the instance.",
            ),
            Panel(
                "Lag",
                [("{{topic}}", f"sum by (topic) ({_of(_LAG)})")],
                about="Runbook: lag grows.",
            ),
            Panel(
                "Time to process the lag at the current rate",
                [
                    (
                        "all",
                        f"sum({_of(_LAG)}) / sum(rate({_of(_THREAD + 'process_total')}[5m]))",
                    )
                ],
                unit="s",
            ),
            Panel(
                "End-to-end latency",
                [
                    ("maximum", f"max({_of(_NODE + 'record_e2e_latency_max')})"),
                    ("average", f"avg({_of(_NODE + 'record_e2e_latency_avg')})"),
                ],
                unit="ms",
                about="From the record's timestamp to its arrival at a node.",
            ),
            Panel(
                "Dropped records",
                [
                    (
                        "task {{task_id}}",
                        f"sum by (task_id) (rate({_of(_TASK + 'dropped_records_total')}[5m]))",
                    )
                ],
                unit="cps",
                about="Records that are too late, have no key, or failed and were skipped.",
            ),
            Panel(
                "Hanging threads",
                [("{{thread_id}}", _of(_OWN + "stalled_ms"))],
                unit="ms",
                about="Runbook: a thread hangs.",
            ),
        ),
    ),
    (
        "Processing",
        (
            Panel(
                "Records processed",
                [
                    (
                        "{{thread_id}}",
                        f"sum by (thread_id) (rate({_of(_THREAD + 'process_total')}[1m]))",
                    )
                ],
                unit="cps",
            ),
            Panel(
                "Time by activity",
                [
                    (name, f"avg({_of(f'{_THREAD}{name}_ratio')})")
                    for name in ("process", "commit", "poll", "punctuate")
                ],
                unit="percentunit",
                about="If process is near 1, add threads. If commit is high, commit less often.",
            ),
            Panel(
                "Commits",
                [
                    ("average", f"avg({_of(_THREAD + 'commit_latency_avg')})"),
                    ("maximum", f"max({_of(_THREAD + 'commit_latency_max')})"),
                ],
                unit="ms",
            ),
            Panel(
                "Tasks created and closed",
                [
                    ("created", f"sum(increase({_of(_THREAD + 'task_created_total')}[5m]))"),
                    ("closed", f"sum(increase({_of(_THREAD + 'task_closed_total')}[5m]))"),
                ],
                about="If both stay high, see the runbook: rebalances do not end.",
            ),
            Panel(
                "Records read and written",
                [
                    (
                        "read",
                        "sum(rate("
                        + _of("kafka_streams_stream_topic_metrics_records_consumed_total")
                        + "[1m]))",
                    ),
                    (
                        "written",
                        "sum(rate("
                        + _of("kafka_streams_stream_topic_metrics_records_produced_total")
                        + "[1m]))",
                    ),
                ],
                unit="cps",
            ),
            Panel(
                "Busiest task of each thread",
                [
                    (
                        "{{thread_id}}",
                        f"max by (thread_id) ({_of(_TASK + 'active_process_ratio')})",
                    )
                ],
                unit="percentunit",
                about="One task near 1 and others near 0 indicate a hot key or partition.",
            ),
        ),
    ),
    (
        "State",
        (
            Panel(
                "Records to restore",
                [
                    (
                        "{{thread_id}}",
                        f"sum by (thread_id) ({_of(_TASK + 'restore_remaining_records_total')})",
                    )
                ],
                about="Runbook: restoring takes long.",
            ),
            Panel(
                "Records restored",
                [("{{thread_id}}", _of(_UPDATER + "restore_records_rate"))],
                unit="cps",
            ),
            Panel(
                "State rebuilds",
                [("{{thread_id}}", f"increase({_of(_OWN + 'state_rebuilt_total')}[1h])")],
            ),
            Panel(
                "Size on disk",
                [
                    (
                        "{{rocksdb_state_id}}",
                        f"sum by (rocksdb_state_id) ({_of(_STATE + 'total_sst_files_size')})",
                    )
                ],
                unit="bytes",
                about="Runbook: the disk is full.",
            ),
            Panel(
                "Estimated keys in RocksDB",
                [
                    (
                        "{{rocksdb_state_id}}",
                        f"sum by (rocksdb_state_id) ({_of(_STATE + 'estimate_num_keys')})",
                    )
                ],
            ),
            Panel(
                "Pending compactions",
                [
                    (
                        "{{rocksdb_state_id}}",
                        "sum by (rocksdb_state_id) "
                        f"({_of(_STATE + 'estimate_pending_compaction_bytes')})",
                    )
                ],
                unit="bytes",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the document that Grafana imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, charts in ROWS:
        panels.append(_row(len(panels) + 1, title, y))
        y += 1
        for number, chart in enumerate(charts):
            x = number * _WIDE % _COLUMNS
            panels.append(_chart(len(panels) + 1, chart, x, y + number * _WIDE // _COLUMNS * _HIGH))
        y += -(-len(charts) * _WIDE // _COLUMNS) * _HIGH
    return {
        "title": "Millstream",
        "uid": "millstream",
        "tags": ["millstream", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "source",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                _variable("job", f"label_values({_CLIENT}alive_stream_threads, job)"),
                _variable(
                    "instance",
                    f'label_values({_CLIENT}alive_stream_threads{{job=~"$job"}}, instance)',
                ),
            ]
        },
        "panels": panels,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}


def _chart(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": source,
        "gridPos": {"h": _HIGH, "w": _WIDE, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": query,
                "legendFormat": name,
            }
            for place, (name, query) in enumerate(panel.queries)
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the dashboard for Grafana.")
    parser.add_argument("--check", action="store_true", help="only check whether it is up to date")
    check = parser.parse_args().check
    text = json.dumps(dashboard(), indent=2) + "\n"
    if DASHBOARD.exists() and DASHBOARD.read_text(encoding="utf-8") == text:
        return 0
    print(f"{DASHBOARD.name} {'is out of date' if check else 'is written'}")
    if not check:
        DASHBOARD.write_text(text, encoding="utf-8")
    return int(check)


if __name__ == "__main__":
    raise SystemExit(main())
