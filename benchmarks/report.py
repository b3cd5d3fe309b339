"""Generates docs/performance.md with its chart, and the figures of docs/index.md.

    python benchmarks/report.py            # write them from the committed results
    python benchmarks/report.py --check    # exit code 1 if it is out of date

The page shows the newest result of each workload, of each rate of the part `latency`, of each order
of `restore`, and of each line of `scaling`. Workloads with another number of keys or partitions are
listed separately, and so are runs with more programs than Millstream and Kafka Streams, because the
slower programs are run with fewer records.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import workload
from harness.load import USERS
from harness.plot import Bar, chart
from programs import JOBS, PROGRAMS, TITLES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
PAGE = DOCS / "performance.md"
FRONT_PAGE = DOCS / "index.md"
PICTURE = DOCS / "images" / "performance-throughput.svg"

Row = Sequence[str]
_FIGURES = ("Whole run, records/s", "Ratio", "Warm, records/s", "Ratio")

#: The jobs on the front page, with their descriptions.
_FRONT_PAGE_JOBS = {
    "count": "count by key",
    "window": "sums in windows",
    "stateless": "stateless, JSON",
}
_FRONT_PAGE_FIGURES = re.compile(
    r"(<!-- figures: python benchmarks/report.py -->\n).*?(<!-- end of figures -->)", re.DOTALL
)

_METHOD = """
## Method

This page compares Millstream with Kafka Streams and other programs. All programs process the same
records with the same broker and settings on the same machine, and take turns within one run.
`benchmarks/report.py` generates the page from the results in `benchmarks/results`;
[benchmarks/README.md](../benchmarks/README.md) describes the measurements and how to repeat them.

**Only ratios within one run are meaningful.** Broker and programs share the processors, so absolute
numbers differ on a faster machine, or on one with more processors. *Ratio* is the median of a
program divided by the median of Kafka Streams: more than 1 is faster. The range in parentheses is
the minimum and maximum over all rounds.
"""

_NOTHING_YET = """
## No results yet

No results are committed. To create them:

```sh
make bench ARGS="--only throughput,guarantees,latency --save"
python benchmarks/report.py
```
"""

_THROUGHPUT = """
## Throughput

Records per second that a thread reads, processes, writes and commits. *Whole run* is measured from
the first record and includes the warm-up of the JVM; *warm* is measured from the first commit after
a quarter of the records. Use *warm* for comparisons.
"""

#: The columns of the summary, with their keys in the results.
_SUMMARY = {"Whole run": "ratio", "Warm": "steady_ratio"}

_OTHERS = """
## Other programs

Records per second of whole runs, with the same jobs in other programs, which take turns with
Millstream and Kafka Streams. Most of these runs have fewer records than those above, so startup has
more weight. The last two columns are the results of Millstream and Kafka Streams in the same run.
The plain loop is hand-written Python code without an engine and without persistent state.
"""

_GUARANTEES = """
## Guarantees and commit intervals

Records per second as above, and the ratio to Kafka Streams with the same guarantee and interval.
`alo` is at least once, `eos` is exactly once (`exactly_once_v2`).
"""

_SCALING = """
## Scaling

How the cost of a record in one stream thread grows with the number of operators, keys and
partitions, and how much memory tasks and cache entries use. Without a broker, the CPU time of the
thread is measured; with a broker, the elapsed time. *Ratio* is relative to the smallest size: 1
means that the cost does not grow.
"""

#: The lines of the part `scaling`, in the order of the page.
_LINES = {
    "depth": "Operators in a chain, without a broker",
    "keys": "Keys of a store, without a broker",
    "tasks": "Tasks of a thread, which share the records of each poll, without a broker",
    "partitions": "Partitions, with a broker (the thread has one task for each)",
    "task-memory": "Memory of a task (resident set)",
    "entry-memory": "Memory of a record cache entry (resident set)",
    "start": "Time until the first record is decoded",
    "idle": "Idle usage of a count with a store for each partition",
}

#: Labels in saved results, and the current ones.
_RELABELED = {
    "us a record": "µs per record",
    "KB a task": "KB per task",
    "bytes an entry": "bytes per entry",
    "operators in a row": "chain of operators",
    "count to one": "count, one output partition",
    "a changed entry": "changed entry",
    "the same, as the cache counts it": "changed entry, as counted by the cache",
}

#: Millstream and Kafka Streams, among `PROGRAMS`.
_BOTH = {"ours", "java"}

#: The default number of partitions of throughput topics.
_PARTITIONS = 4

_LATENCY = """
## Latency

Milliseconds from the due time of a record until another process has received its result, at a
steady rate. Both programs have the same commit interval; `count` has no cache, so that each record
has a result.

The tails at several thousand records per second are caused by librdkafka, which sends a request per
partition, while Kafka's Java client combines all partitions of a broker into one request: `count`
writes to eight partitions here, in 1,600 requests per second instead of 200.
"""


_RESTORE = """
## Restoring

Records per second that a thread restores from a changelog into a store, from the first record
until the store is ready.
"""


@dataclass(frozen=True, slots=True)
class Saved:
    """A file with results."""

    name: str
    content: Mapping[str, Any]

    @property
    def part(self) -> str:
        return str(self.content["part"])

    @property
    def measured(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.content["measured"]
        return found


def saved(folder: Path = RESULTS) -> list[Saved]:
    """Return all saved results, oldest first."""
    files = [Saved(path.name, json.loads(path.read_text())) for path in folder.glob("*.json")]
    return sorted(files, key=lambda one: (one.content["at"], one.name))


def pages(results: Iterable[Saved]) -> dict[Path, str]:
    """Generate the page, its chart and the figures of the front page from results."""
    known = list(results)
    made: dict[Path, str] = {}
    text = ["# Performance\n"]
    throughput = _cases(known, "throughput")
    summary = {title: found for title, found in throughput.items() if found[0].keys() == _BOTH}
    others = _others(known)
    guarantees = _cases(known, "guarantees")
    latency = _latencies(known)
    restore = _orders(known)
    scaling = _lines(known)
    if summary:
        made[PICTURE] = _picture(summary)
        text.append(_summary(summary))
    if summary.keys() >= _FRONT_PAGE_JOBS.keys():
        front_page = FRONT_PAGE.read_text(encoding="utf-8")
        figures = _front_page_figures([summary[job] for job in _FRONT_PAGE_JOBS])
        made[FRONT_PAGE] = _FRONT_PAGE_FIGURES.sub(rf"\1\n{figures}\n\2", front_page)
    text.append(_METHOD)
    if throughput:
        text.append(_THROUGHPUT)
        text += [_throughput_of(title, entries) for title, (entries, _) in throughput.items()]
    if others:
        text.append(_OTHERS)
        text.append(_others_table(others))
    if guarantees:
        text.append(_GUARANTEES)
        text.append(_guarantees_table({title: found[0] for title, found in guarantees.items()}))
    if latency:
        text.append(_LATENCY)
        text.append(_latency_table(row for rows, _ in latency.values() for row in rows))
    if restore:
        text.append(_RESTORE)
        text.append(_restore_table({order: found[0] for order, found in restore.items()}))
    if scaling:
        text.append(_SCALING)
        text += [_scaling_table(title, line) for title, (line, _) in scaling.items()]
    parts: tuple[Mapping[Any, tuple[Any, Saved]], ...]
    parts = (throughput, others, guarantees, latency, restore, scaling)
    used = {one.name: one for found in parts for _, one in found.values()}
    text.append(_conditions(sorted(used.items())) if used else _NOTHING_YET)
    made[PAGE] = "".join(text)
    return made


def _cases(known: Iterable[Saved], part: str) -> dict[str, tuple[Mapping[str, Any], Saved]]:
    """Return the newest results of jobs run only by Millstream and Kafka Streams.

    The values are the results of each program, and their file.
    """
    found = {
        title: (entries, one)
        for title, entries, one in _jobs(known, part)
        if entries.keys() <= _BOTH
    }
    return dict(sorted(found.items()))


def _others(
    known: Iterable[Saved],
) -> dict[tuple[str, str], tuple[Mapping[str, Any], Saved]]:
    """Return the newest results of each job and each other program, and their files."""
    found = {
        (title, program): (entries, one)
        for title, entries, one in _jobs(known, "throughput")
        for program in entries.keys() - _BOTH
    }
    return dict(sorted(found.items(), key=lambda item: (item[0][0], PROGRAMS.index(item[0][1]))))


def _jobs(known: Iterable[Saved], part: str) -> Iterator[tuple[str, Mapping[str, Any], Saved]]:
    """Yield all results of a part, oldest first.

    Yields the job's title (with keys and partitions if they are not the default), the results of
    each program, and the file.
    """
    for one in known:
        if one.part == part:
            keys = one.measured.get("keys", USERS)
            partitions = one.content.get("partitions", _PARTITIONS)
            end = "" if keys == USERS else f", {keys:,} keys"
            end += "" if partitions == _PARTITIONS else f", {partitions:,} partitions"
            for title, entries in one.measured["medians"].items():
                yield title + end, entries, one


def _lines(known: Iterable[Saved]) -> dict[str, tuple[Mapping[str, Any], Saved]]:
    """Return the newest results of each line of the part `scaling`, by title.

    The values contain the results and their file.

    If they do not include Kafka Streams, also returns the newest results that do.
    """
    found: dict[tuple[str, bool], tuple[Mapping[str, Any], Saved]] = {}
    for one in known:
        if one.part == "scaling":
            for name, line in one.measured["lines"].items():
                with_kafka_streams = any(TITLES["java"] in row["what"] for row in line["rows"])
                found[name, with_kafka_streams] = line, one
                if with_kafka_streams:
                    found.pop((name, False), None)
    titled = {}
    for name, title in _LINES.items():
        for with_kafka_streams, end in ((False, ""), (True, ", with Kafka Streams")):
            if (name, with_kafka_streams) in found:
                titled[title + end] = found[name, with_kafka_streams]
    return titled


def _latencies(
    known: Iterable[Saved],
) -> dict[tuple[str, int], tuple[Sequence[Mapping[str, Any]], Saved]]:
    """Return the newest latencies of each job at each rate, and their files."""
    found: dict[tuple[str, int], tuple[list[Mapping[str, Any]], Saved]] = {}
    for one in known:
        if one.part == "latency":
            paces = {(row["job"], row["rate"]) for row in one.measured["medians"]}
            found.update({pace: ([], one) for pace in paces})
            for row in one.measured["medians"]:
                found[row["job"], row["rate"]][0].append(row)
    return dict(sorted(found.items()))


def _orders(known: Iterable[Saved]) -> dict[str, tuple[Mapping[str, Any], Saved]]:
    """Return the newest restorations of each order of keys, and their files."""
    found = {one.measured["order"]: (one.measured, one) for one in known if one.part == "restore"}
    return dict(sorted(found.items()))


def _scaling_table(title: str, line: Mapping[str, Any]) -> str:
    records = f" of {line['records']:,} records" if line["records"] else ""
    head = ("", line["grows"].capitalize(), _relabeled(line["unit"]), "Ratio")
    rows = [
        (
            _relabeled(row["what"]),
            f"{row['size']:,}",
            f"{row['median']:,.2f} ({row['least']:,.2f} to {row['most']:,.2f})",
            "–" if row["ratio"] is None else f"**{row['ratio']:.2f}**",
        )
        for row in line["rows"]
    ]
    rounds = "One round" if line["rounds"] == 1 else f"{line['rounds']} rounds"
    return f"\n### {title}\n\n{rounds}{records}.\n\n{_table(head, rows)}"


def _relabeled(text: str) -> str:
    """Return the current form of a saved label."""
    for saved_label, label in _RELABELED.items():
        text = text.replace(saved_label, label)
    return text


Cases = Sequence[tuple[Mapping[str, Any], Saved]]


def _front_page_figures(cases: Cases) -> str:
    ratios = [f"**{entries['ours']['steady_ratio']:.1f}×**" for entries, _ in cases]
    return (
        f"{_table(ratios, [list(_FRONT_PAGE_JOBS.values())])}\n"
        f"Throughput relative to {TITLES['java']} once both are warm: {_condition(cases)}. "
        f"[All results]({PAGE.relative_to(DOCS)}).\n"
    )


def _summary(cases: Mapping[str, tuple[Mapping[str, Any], Saved]]) -> str:
    """Return the first sentence, the chart and the compact table of the page."""
    found = list(cases.values())
    warm = [
        entries["ours"]["steady_ratio"]
        for entries, _ in found
        if entries["ours"].get("steady_ratio") is not None
    ]
    text = ""
    if warm:
        text = (
            f"\nDepending on the job, Millstream processes {min(warm):.1f} to {max(warm):.1f} "
            f"times as many records per second as {TITLES['java']} once both are warm: "
            f"{_condition(found)}. Without the extension, a record takes about "
            "[twice as long](operations/speedups.md#performance).\n"
        )
    rows = [
        (
            f"[{title}](#{_anchor(title)})",
            *(_short_ratio(entries["ours"], ratio) for ratio in _SUMMARY.values()),
        )
        for title, (entries, _) in cases.items()
    ]
    return (
        f"{text}\n![Throughput as a ratio to Kafka Streams]({PICTURE.relative_to(DOCS)})\n\n"
        f"{_table(('Job', *_SUMMARY), rows)}"
    )


def _condition(cases: Cases) -> str:
    """Return the conditions of results, as part of a sentence."""
    files = [one.content for _, one in cases]
    cores = _range(file["machine"]["processors"] for file in files)
    records = _range(one.measured["records"] for _, one in cases)
    java = ", ".join(sorted({file["versions"].get("java", "?") for file in files}))
    extension = {bool(file["versions"].get("C extension")) for file in files}
    with_extension = "and, in a part of the results, the C extension"
    if len(extension) == 1:
        with_extension = (
            "and the [C extension](operations/speedups.md), which the wheels for Linux and macOS "
            "contain"
            if extension.pop()
            else "without the C extension"
        )
    return (
        f"one thread each, {cores} cores shared with the broker, {records} records, Java {java}, "
        f"{with_extension}"
    )


def _range(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return " to ".join(f"{number:,}" for number in dict.fromkeys((found[0], found[-1])))


def _anchor(title: str) -> str:
    """Return the anchor of a heading, as on GitHub."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _short_ratio(entry: Mapping[str, Any], name: str) -> str:
    return "–" if entry.get(name) is None else f"{entry[name]:.2f}"


def _picture(cases: Mapping[str, tuple[Mapping[str, Any], Saved]]) -> str:
    groups = {
        title: [
            Bar(series, ours[ratio], *ours[f"{ratio}_spread"])
            for series, ratio in _SUMMARY.items()
            if _has(ours := entries["ours"], ratio)
        ]
        for title, (entries, _) in cases.items()
    }
    return chart(
        f"Throughput of Millstream; {TITLES['java']} is 1",
        {title: bars for title, bars in groups.items() if bars},
        list(_SUMMARY),
    )


def _has(entry: Mapping[str, Any], ratio: str) -> bool:
    return entry.get(ratio) is not None and f"{ratio}_spread" in entry


def _throughput_of(title: str, entries: Mapping[str, Any]) -> str:
    job = title.partition(",")[0].split()[0]
    description = f"{workload.find(job).description}\n\n" if job in JOBS else ""
    head = ("Program", *_FIGURES)
    rows = [
        (TITLES[program], *_figures(entry))
        for program in PROGRAMS
        if (entry := entries.get(program))
    ]
    return f"\n### {title}\n\n{description}{_table(head, rows)}"


def _others_table(cases: Mapping[tuple[str, str], tuple[Mapping[str, Any], Saved]]) -> str:
    head = ("Job", "Program", "Records", "Program's records/s", "Millstream's", "Kafka Streams'")
    rows = []
    for (title, program), (entries, one) in cases.items():
        job, comma, more = title.partition(", ")
        rate = entries[program]["rate"]
        rates = [
            f"{entries[other]['rate']:,.0f}, **{entries[other]['rate'] / rate:.1f}** times"
            if other in entries
            else "–"
            for other in ("ours", "java")
        ]
        records = f"{one.measured['records']:,}"
        figures = (records, _rate(entries[program], "rate"), *rates)
        rows.append((f"`{job}`{comma}{more}", TITLES[program], *figures))
    return "\n" + _table(head, rows)


def _guarantees_table(cases: Mapping[str, Mapping[str, Any]]) -> str:
    head = ("Job", "Guarantee", "Commit interval", "Program", *_FIGURES)
    rows = []
    ordered = sorted(cases.items(), key=lambda case: _guarantee(case[0]))
    for title, entries in ordered:
        job, guarantee, interval_ms = _guarantee(title)
        _, comma, more = title.partition(", ")
        rows += [
            (
                f"`{job}`{comma}{more}",
                f"`{guarantee}`",
                f"{interval_ms:,} ms",
                TITLES[program],
                *_figures(entry),
            )
            for program in PROGRAMS
            if (entry := entries.get(program))
        ]
    return "\n" + _table(head, rows)


def _guarantee(title: str) -> tuple[str, str, int]:
    job, guarantee, interval_ms, *_ = title.replace(",", " ").split()
    return job, guarantee, int(interval_ms)


def _restore_table(orders: Mapping[str, Mapping[str, Any]]) -> str:
    head = ("Order of keys", "Program", "Records/s", "Ratio")
    rows = []
    for order, measured in orders.items():
        for program in PROGRAMS:
            if entry := measured["medians"].get(program):
                rates = [run["rate"] for run in measured["runs"] if run["program"] == program]
                spread = f"{entry['rate']:,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
                rows.append((order, TITLES[program], spread, _ratio(entry, "ratio")))
    return "\n" + _table(head, rows)


def _latency_table(measured: Iterable[Mapping[str, Any]]) -> str:
    head = ("Job", "Records/s", "Program", "p50 ms", "p99 ms", "p99.9 ms")
    rows = [
        (
            f"`{one['job']}`",
            f"{one['rate']:,}",
            TITLES[one["program"]],
            *(_milliseconds(one, name) for name in ("p50_ms", "p99_ms", "p999_ms")),
        )
        for one in measured
    ]
    return "\n" + _table(head, rows)


def _milliseconds(one: Mapping[str, Any], name: str) -> str:
    least, most = one[f"{name}_spread"]
    return f"{one[name]:,.1f} ({least:,.1f} to {most:,.1f})"


def _figures(entry: Mapping[str, Any]) -> Row:
    return (
        _rate(entry, "rate"),
        _ratio(entry, "ratio"),
        _rate(entry, "steady_rate"),
        _ratio(entry, "steady_ratio"),
    )


def _rate(entry: Mapping[str, Any], name: str) -> str:
    if entry.get(name) is None:
        return "–"
    least, most = entry[f"{name}_spread"]
    return f"{entry[name]:,.0f} ({least:,.0f} to {most:,.0f})"


def _ratio(entry: Mapping[str, Any], name: str) -> str:
    if entry.get(name) is None:
        return "–"
    if f"{name}_spread" not in entry:
        return f"{entry[name]:.2f}"
    least, most = entry[f"{name}_spread"]
    return f"**{entry[name]:.2f}** ({least:.2f} to {most:.2f})"


def _conditions(used: Sequence[tuple[str, Saved]]) -> str:
    head = ("Result", "Date", "Machine", "Records", "Rounds", "Commit", "Other versions")
    of_all = set.intersection(*(set(one.content["versions"].items()) for _, one in used))
    rows = []
    for name, one in used:
        machine, measured = one.content["machine"], one.measured
        versions = one.content["versions"]
        records = measured.get("records")
        rows.append(
            (
                f"[{name}](../benchmarks/results/{name})",
                one.content["at"][:10],
                f"{machine['processors']} × {machine['cpu']}, {machine['memory_gb']} GB",
                f"{records:,}" if records else "–",
                # In the part `scaling`, each line has its own number of rounds.
                str(measured.get("rounds", "–")),
                f"`{one.content['commit']}`",
                _versions(item for item in versions.items() if item not in of_all) or "–",
            )
        )
    same = [item for item in used[0][1].content["versions"].items() if item in of_all]
    versions_of_all = f"Versions in all runs: {_versions(same)}.\n\n" if same else ""
    return f"\n## Conditions\n\n{versions_of_all}{_table(head, rows)}"


def _versions(items: Iterable[tuple[str, str | None]]) -> str:
    return ", ".join(f"{name} {version or 'none'}" for name, version in items)


def _table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only check whether it is up to date")
    check = parser.parse_args().check
    outdated = False
    for path, text in pages(saved()).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        outdated = True
        print(f"{path.relative_to(ROOT)} {'is out of date' if check else 'was written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and outdated)


if __name__ == "__main__":
    raise SystemExit(main())
