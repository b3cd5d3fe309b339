"""Writes docs/operations/limits.md, the limits in the code that are not settings.

    python docs/generators/generate_limits.py            # rewrite the page
    python docs/generators/generate_limits.py --check    # exit code 1 if it is out of date

Limits that are settings are in configuration.md, which generate_configuration.py writes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated import write_or_check

PAGE = Path(__file__).parents[1] / "operations" / "limits.md"

_START = """# Limits

All queues, caches and waiting times have limits. Most limits are [settings](configuration.md); this
page, which `python docs/generators/generate_limits.py` generates from the code, lists the others.
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """A row of the page.

    Attributes:
        name: the limited quantity.
        module: the module that defines the limit.
        constant: the constant in that module.
        shown: formats the value.
        beyond: the consequence of exceeding the limit.
    """

    name: str
    module: str
    constant: str
    shown: Callable[[Any], str]
    beyond: str


def number(value: int) -> str:
    """Format a count."""
    return f"{value:,}"


def milliseconds(value: float) -> str:
    """Format a duration in milliseconds, in the most readable unit."""
    if value >= 60_000 and value % 60_000 == 0:
        return f"{value // 60_000:,.0f} min"
    return f"{value / 1_000:g} s" if value >= 1_000 else f"{value:g} ms"


def seconds(value: float) -> str:
    """Format a duration in seconds."""
    return milliseconds(value * 1_000)


def size(value: int) -> str:
    """Format a number of bytes."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if value >= 1 << shift:
            return f"{value / (1 << shift):g} {unit}"
    return f"{value:,} bytes"


_CONCURRENT = "millstream.operators.concurrent."
_QUERIES = "millstream.runtime.queries."
_LOOP = "millstream.runtime.loop."
_EVENT_LOG = "millstream.application.event_log.event_log"

SECTIONS: Sequence[tuple[str, Sequence[Limit]]] = (
    (
        "Records and threads",
        (
            Limit(
                "queued records of a `map_async`, in addition to its running calls",
                _CONCURRENT + "map_async",
                "_MAX_QUEUED",
                number,
                "the partition is paused",
            ),
            Limit(
                "pending tasks of a subscription, per partition",
                _CONCURRENT + "concurrent_operator",
                "_MAX_PENDING",
                number,
                "the partition is paused",
            ),
            Limit(
                "age at which a pending task is reported",
                "millstream.subscriptions.operator.pending_tasks",
                "OLD_TASK_MS",
                milliseconds,
                "a warning with its partition and offset, every minute",
            ),
            Limit(
                "wall-clock time of a batch",
                "millstream.runtime.task.time_limits",
                "_BATCH_MS",
                milliseconds,
                "smaller batches",
            ),
            Limit(
                "time of a batch with several records, unless half of `max.poll.interval.ms` or "
                "`transaction.timeout.ms` is shorter",
                "millstream.runtime.task.time_limits",
                "_MAX_BUDGET_MS",
                milliseconds,
                "the batch is stopped between two records; uncommitted work is repeated",
            ),
            Limit(
                "flushes in one commit, if each causes further changes",
                "millstream.runtime.task.stream_task",
                "_MAX_FLUSHES",
                number,
                "a warning; the remaining changes are written, but not forwarded",
            ),
            Limit(
                "consecutive rebuilds of a corrupted task's state",
                "millstream.runtime.task_management.task_manager",
                "_MAX_REVIVALS",
                number,
                "the disk is considered broken, and the thread fails",
            ),
            Limit(
                "time for retries of a closing thread's last commit during a rebalance",
                _LOOP + "thread_closer",
                "_FINAL_COMMIT_MS",
                milliseconds,
                "the thread closes without the commit; the work is repeated",
            ),
            Limit(
                "backoff before rejoining a group after errors",
                _LOOP + "rebalances",
                "_MAX_BACKOFF_MS",
                milliseconds,
                "the backoff starts at 100 ms and doubles up to this limit",
            ),
        ),
    ),
    (
        "Clients",
        (
            Limit(
                "fetched records in librdkafka's queues, all threads together",
                "millstream.kafka.settings.librdkafka_settings",
                "_PREFETCH_KBYTES",
                lambda value: size(value * 1024),
                "fetching pauses; the consumer's `queued.max.messages.kbytes` changes the limit",
            ),
            Limit(
                "unsent records in librdkafka's queues, all threads together",
                "millstream.kafka.settings.librdkafka_settings",
                "_UNSENT_KBYTES",
                lambda value: size(value * 1024),
                "the thread waits for the broker; `queue.buffering.max.kbytes` changes the limit",
            ),
            Limit(
                "size of the group record, in bytes",
                "millstream.assignment.leader_assignor",
                "_WARNING_BYTES",
                number,
                "a warning: by default, brokers reject a group record above 1 MiB",
            ),
        ),
    ),
    (
        "Queries",
        (
            Limit(
                "time until a thread responds",
                _QUERIES + "query_messages",
                "ANSWER_TIMEOUT_MS",
                milliseconds,
                "`ThreadUnavailableError`",
            ),
            Limit(
                "open iterators, per thread",
                _QUERIES + "open_cursors",
                "MAX_CURSORS",
                number,
                "the least recently used iterator is closed; if that was used within 15 s, "
                "`StateStoreNotAvailableError`",
            ),
            Limit(
                "idle time of an open iterator",
                _QUERIES + "open_cursors",
                "IDLE_TIMEOUT_MS",
                milliseconds,
                "the iterator is closed; the next read raises `StateStoreMigratedError`",
            ),
            Limit(
                "entries of in-memory stores that are copied for results, per thread",
                _QUERIES + "open_cursors",
                "MAX_COPIED_PAIRS",
                number,
                "further queries that need a copy raise an error",
            ),
            Limit(
                "size of one page of a result",
                _QUERIES + "store_queries",
                "_MAX_BYTES",
                size,
                "the rest follows in the next page",
            ),
            Limit(
                "time until another instance responds",
                "millstream.query.remote_instances",
                "TIMEOUT_S",
                seconds,
                "`ThreadUnavailableError` with its host",
            ),
            Limit(
                "size of a response from another instance",
                "millstream.query.remote_instances",
                "_MAX_BYTES",
                size,
                "an error",
            ),
            Limit(
                "concurrent requests to other instances",
                "millstream.query.fan_out",
                "_MAX_CONCURRENT",
                number,
                "further requests wait",
            ),
        ),
    ),
    (
        "HTTP",
        (
            Limit(
                "parameters of a request",
                "millstream.server.parameters",
                "_MAX_PARAMETERS",
                number,
                "`400`",
            ),
            Limit(
                "size of a page of entries",
                "millstream.server.paged_answers",
                "_PAGE_BYTES",
                size,
                "the rest follows in the next page",
            ),
            Limit(
                "open consoles",
                "millstream.server.routes.console_data",
                "_MAX_STREAMS",
                number,
                "`429`",
            ),
            Limit(
                "characters of a value that is shown as its `repr`",
                "millstream.server.json_codec",
                "_MAX_REPR_LENGTH",
                number,
                "the rest is omitted",
            ),
            Limit(
                "depth of a value",
                "millstream.server.json_codec",
                "_MAX_DEPTH",
                number,
                "deeper parts are shown as `...`",
            ),
            Limit(
                "concurrent scrapes of `metrics_port`",
                "millstream.export.scrape_server",
                "_MAX_REQUESTS",
                number,
                "the connection is closed",
            ),
        ),
    ),
    (
        "Event log of the console",
        (
            Limit(
                "state changes",
                _EVENT_LOG,
                "_MAX_STATES",
                number,
                "the oldest are discarded",
            ),
            Limit(
                "rebalances",
                _EVENT_LOG,
                "_MAX_REBALANCES",
                number,
                "the oldest are discarded",
            ),
            Limit(
                "errors",
                _EVENT_LOG,
                "_MAX_FAILURES",
                number,
                "the oldest are discarded",
            ),
            Limit(
                "steps per error",
                _EVENT_LOG,
                "_MAX_STEPS",
                number,
                "the oldest are discarded",
            ),
            Limit(
                "finished restorations",
                _EVENT_LOG,
                "_MAX_ENDED",
                number,
                "the oldest are discarded",
            ),
        ),
    ),
    (
        "Development",
        (
            Limit(
                "time until an embedded broker responds",
                "millstream.embedded.node",
                "_START_TIMEOUT_MS",
                milliseconds,
                "`EmbeddedKafkaError` with the end of its log",
            ),
            Limit(
                "time for downloading jars",
                "millstream.embedded.jars",
                "_FETCH_TIMEOUT_MS",
                milliseconds,
                "`EmbeddedKafkaError`",
            ),
            Limit(
                "files that `run --watch` watches",
                "millstream.cli.programs.supervised_program",
                "_MAX_FILES",
                number,
                "further files are not watched",
            ),
            Limit(
                "time to close before `run --watch` kills the program",
                "millstream.cli.programs.supervised_program",
                "_CLOSE_S",
                seconds,
                "SIGKILL",
            ),
        ),
    ),
)


def page() -> str:
    """Return the whole page.

    Raises:
        AttributeError: a constant no longer exists.
    """
    text = [_START]
    for title, limits in SECTIONS:
        text.append(f"\n## {title}\n\n| Limit | Value | Beyond the limit |\n|---|---|---|\n")
        for limit in limits:
            value = getattr(importlib.import_module(limit.module), limit.constant)
            text.append(f"| {limit.name} | {limit.shown(value)} | {limit.beyond} |\n")
    return "".join(text)


if __name__ == "__main__":
    raise SystemExit(write_or_check(__doc__, [(PAGE, page())], sys.argv[1:]))
