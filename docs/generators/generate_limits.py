"""Writes docs/operations/limits.md: what is bounded that no setting changes, as the code has it.

    python docs/generators/generate_limits.py            # rewrite the page
    python docs/generators/generate_limits.py --check    # exit code 1 if it is not up to date

Bounds that are settings are in configuration.md, made by generate_configuration.py.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated import written

PAGE = Path(__file__).parents[1] / "operations" / "limits.md"

_START = """# Limits

Everything that can grow or wait has a bound. Most are [settings](configuration.md); these are not,
and are what the code says (`python docs/generators/generate_limits.py` makes this page of it).
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound.

    Attributes:
        what: is bounded.
        module: of millstream that has it.
        constant: its name there.
        said: its value in words.
        beyond: what happens there.
    """

    what: str
    module: str
    constant: str
    said: Callable[[Any], str]
    beyond: str


def number(value: int) -> str:
    """A count."""
    return f"{value:,}"


def milliseconds(value: float) -> str:
    """A duration, in the unit in which people say it."""
    if value >= 60_000 and value % 60_000 == 0:
        return f"{value // 60_000:,.0f} min"
    return f"{value / 1_000:g} s" if value >= 1_000 else f"{value:g} ms"


def seconds(value: float) -> str:
    """A duration that is kept in seconds."""
    return milliseconds(value * 1_000)


def size(value: int) -> str:
    """A number of bytes."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if value >= 1 << shift:
            return f"{value / (1 << shift):g} {unit}"
    return f"{value:,} bytes"


_STREAMS = "millstream.operators.apart."
_QUERIES = "millstream.runtime.queries."
_LOOP = "millstream.runtime.loop."
_STORY = "millstream.application.story."

SECTIONS: Sequence[tuple[str, Sequence[Limit]]] = (
    (
        "Records and threads",
        (
            Limit(
                "records of a `map_async` that wait for a turn beside those that have one",
                _STREAMS + "map_async",
                "_WAITING",
                number,
                "the partition is not read on",
            ),
            Limit(
                "tasks of a subscription that are pending, a partition",
                _STREAMS + "apart_operator",
                "_MOST_PENDING",
                number,
                "the partition is not read on",
            ),
            Limit(
                "age of a pending task before it is told",
                _STREAMS + "subscription.pending",
                "OLD_MS",
                milliseconds,
                "a warning with its partition and offset, each minute",
            ),
            Limit(
                "time by the wall clock for which a batch is made at once",
                "millstream.runtime.task.queues.batch_size",
                "_BATCH_MS",
                milliseconds,
                "smaller batches",
            ),
            Limit(
                "time for a batch that has several records, if half of `max.poll.interval.ms` or "
                "`transaction.timeout.ms` is longer",
                "millstream.runtime.task.time_limits",
                "_MOST_BUDGET_MS",
                milliseconds,
                "it is stopped between two records; uncommitted work is done again",
            ),
            Limit(
                "flushes that a commit makes because each has caused further changes",
                "millstream.runtime.task.stream_task",
                "_MOST_FLUSHES",
                number,
                "an error: a topology that feeds itself",
            ),
            Limit(
                "rebuilds of a task's state in a row after it was found corrupted",
                "millstream.runtime.ownership.tasks",
                "_MOST_REVIVALS",
                number,
                "its disk is thought to be broken: the thread fails",
            ),
            Limit(
                "time for the last commit while a thread closes",
                _LOOP + "closing",
                "_LAST_COMMIT_MS",
                milliseconds,
                "it closes without; the work is done again",
            ),
            Limit(
                "pause before a group is joined anew after errors",
                _LOOP + "joining_anew",
                "_MOST_MS",
                milliseconds,
                "from a tenth of a second on it doubles up to this",
            ),
        ),
    ),
    (
        "Clients",
        (
            Limit(
                "bytes of records that were fetched and wait in librdkafka, of all threads",
                "millstream.kafka.settings.clients",
                "_PREFETCH_KBYTES",
                lambda value: size(value * 1024),
                "nothing is fetched; `queued.max.messages.kbytes` of the consumer changes it",
            ),
            Limit(
                "bytes of records that were written and wait in librdkafka, of all threads",
                "millstream.kafka.settings.clients",
                "_UNSENT_KBYTES",
                lambda value: size(value * 1024),
                "the thread waits for the broker; `queue.buffering.max.kbytes` changes it",
            ),
            Limit(
                "subscription of a group from which on it is said that it is large",
                "millstream.assignment.leader_assignor",
                "_LARGE_BYTES",
                number,
                "a warning: brokers refuse a group of 1 MiB",
            ),
        ),
    ),
    (
        "Queries",
        (
            Limit(
                "time until a thread answers",
                _QUERIES + "questions",
                "ANSWER_MS",
                milliseconds,
                "`ThreadUnavailableError`",
            ),
            Limit(
                "long answers that are open, a thread",
                _QUERIES + "cursors",
                "MOST_CURSORS",
                number,
                "the one that was not read for longest ends",
            ),
            Limit(
                "time without reading of an open iterator",
                _QUERIES + "cursors",
                "IDLE_MS",
                milliseconds,
                "it ends, and says so when it is read",
            ),
            Limit(
                "pairs that are copied for answers, a thread",
                _QUERIES + "cursors",
                "MOST_COPIED",
                number,
                "no further answer is copied: it is refused",
            ),
            Limit(
                "bytes of an answer at a time",
                _QUERIES + "store_queries",
                "_MOST_BYTES",
                size,
                "more in the next",
            ),
            Limit(
                "time until another instance answers",
                "millstream.query.peers",
                "TIMEOUT_S",
                seconds,
                "`ThreadUnavailableError` of its host",
            ),
            Limit(
                "an answer of another instance",
                "millstream.query.peers",
                "_MOST_BYTES",
                size,
                "an error",
            ),
            Limit(
                "instances that are asked at the same time",
                "millstream.query.gathering",
                "_MOST_AT_ONCE",
                number,
                "the others after them",
            ),
        ),
    ),
    (
        "HTTP",
        (
            Limit(
                "parameters of a request",
                "millstream.server.parameters",
                "_PARAMETERS_MOST",
                number,
                "`400`",
            ),
            Limit(
                "bytes of a page of entries",
                "millstream.server.pages",
                "_PAGE_BYTES",
                size,
                "the rest in the next page",
            ),
            Limit(
                "consoles that follow at the same time",
                "millstream.server.routes.console",
                "_STREAMS_MOST",
                number,
                "`429`",
            ),
            Limit(
                "elements of a value that are shown",
                "millstream.server.forms",
                "_SHOWN_MOST",
                number,
                "a word that there are more",
            ),
            Limit(
                "depth of a value that is shown",
                "millstream.server.forms",
                "_DEEPEST",
                number,
                "its `repr`",
            ),
            Limit(
                "scrapes of `metrics_port` at the same time",
                "millstream.export.scrape_server",
                "_MOST",
                number,
                "closed",
            ),
        ),
    ),
    (
        "What the console remembers",
        (
            Limit("changes of state", _STORY + "story", "_MOST_STATES", number, "the oldest go"),
            Limit("rebalances", _STORY + "rebalances", "_MOST", number, "the oldest go"),
            Limit("errors", _STORY + "failures", "_MOST", number, "the oldest go"),
            Limit(
                "steps of an error",
                _STORY + "failures",
                "_MOST_STEPS",
                number,
                "those in the middle are left out",
            ),
            Limit(
                "restorations that have ended",
                _STORY + "restores",
                "_MOST_ENDED",
                number,
                "the oldest go",
            ),
        ),
    ),
    (
        "Development",
        (
            Limit(
                "time until an embedded broker answers",
                "millstream.embedded.node",
                "_START_TIMEOUT_MS",
                milliseconds,
                "`EmbeddedKafkaError` with the end of its log",
            ),
            Limit(
                "time for fetching jars",
                "millstream.embedded.jars",
                "_FETCH_TIMEOUT_MS",
                milliseconds,
                "`EmbeddedKafkaError`",
            ),
            Limit(
                "files that `run --watch` looks at",
                "millstream.cli.programs.changes",
                "_FILES_MOST",
                number,
                "the others are not watched, and it says so",
            ),
            Limit(
                "time for closing before `run --watch` kills",
                "millstream.cli.programs.supervised",
                "_CLOSE_S",
                seconds,
                "SIGKILL",
            ),
        ),
    ),
)


def page() -> str:
    """The whole page.

    Raises:
        AttributeError: a bound is not there any more.
    """
    text = [_START]
    for title, limits in SECTIONS:
        text.append(f"\n## {title}\n\n| What | At most | Beyond it |\n|---|---|---|\n")
        for limit in limits:
            value = getattr(importlib.import_module(limit.module), limit.constant)
            text.append(f"| {limit.what} | {limit.said(value)} | {limit.beyond} |\n")
    return "".join(text)


if __name__ == "__main__":
    raise SystemExit(written(__doc__, [(PAGE, page())], sys.argv[1:]))
