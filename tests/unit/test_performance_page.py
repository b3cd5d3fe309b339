"""docs/performance.md equals the page generated from the committed results."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import report
from growth.lines import Line, Row, with_ratios
from programs import TITLES


def entry(factor: float) -> dict[str, Any]:
    """The results of a program with this factor of Kafka Streams' speed."""
    rate, spread = 100_000 * factor, (90_000 * factor, 110_000 * factor)
    ratios = (factor * 0.9, factor * 1.1)
    return {
        "rate": rate,
        "rate_spread": spread,
        "ratio": factor,
        "ratio_spread": ratios,
        "steady_rate": 2 * rate,
        "steady_rate_spread": spread,
        "steady_ratio": factor,
        "steady_ratio_spread": ratios,
    }


def result(part: str, at: str, *, extension: str | None = None, **measured: Any) -> report.Saved:
    """A saved result."""
    content = {
        "part": part,
        "at": at,
        "machine": {"cpu": "Abacus", "processors": 2, "memory_gb": 8},
        "versions": {"python": "3.13.0", "C extension": extension},
        "commit": "abc",
        "measured": {"rounds": 5, "records": 1_000, **measured},
    }
    return report.Saved(f"{at}-{part}.json", content)


def test_the_page_is_up_to_date() -> None:
    """Results and page must be committed together."""
    for path, text in report.pages(report.saved()).items():
        assert path.read_text(encoding="utf-8") == text, "run: python benchmarks/report.py"


def test_without_results_the_page_contains_instructions(tmp_path: Path) -> None:
    """There are no empty tables."""
    made = report.pages(report.saved(tmp_path))
    assert made.keys() == {report.PAGE}
    assert "No results yet" in made[report.PAGE]


def test_the_newest_result_of_a_workload_is_shown() -> None:
    """A repeated result replaces the older one only."""
    old = {"count": {"ours": entry(1.25), "java": entry(1)}, "sum": {"ours": entry(1.75)}}
    new = {"count": {"ours": entry(2.25), "java": entry(1)}}
    page = report.pages(
        [
            result("throughput", "2026-01-01", medians=old),
            result("throughput", "2026-01-02", medians=new),
            result("throughput", "2026-01-03", medians=new, keys=1_000_000),
        ]
    )[report.PAGE]
    assert "**1.25**" not in page
    assert "**1.75** (1.57 to 1.93)" in page
    assert page.count("**2.25** (2.02 to 2.48)") == 4
    assert "| [count, 1,000,000 keys](#count-1000000-keys) | 2.25 | 2.25 |" in page
    assert "### count, 1,000,000 keys" in page
    assert all(f"2026-01-0{day}-throughput.json" in page for day in (1, 2, 3))


def test_other_keys_and_partitions_are_separate() -> None:
    """A result with more keys or partitions does not replace the usual one."""
    medians = {"count": {"ours": entry(2)}}
    cases = {"count eos 100 ms": {"ours": entry(2)}}
    usual = result("throughput", "2026-01-01", medians=medians)
    many = result("throughput", "2026-01-02", medians=medians, keys=10_000_000)
    wide = result("throughput", "2026-01-03", medians=medians)
    wide = report.Saved(wide.name, {**wide.content, "partitions": 200})
    guarantees = [
        result("guarantees", f"2026-02-0{day}", medians=cases, keys=keys)
        for day, keys in enumerate((10_000, 1_000_000), 1)
    ]
    page = report.pages([usual, many, wide, *guarantees])[report.PAGE]
    titles = [line for line in page.splitlines() if line.startswith("### count")]
    assert titles == ["### count", "### count, 10,000,000 keys", "### count, 200 partitions"]
    assert "| `count` | `eos` | 100 ms |" in page
    assert "| `count`, 1,000,000 keys | `eos` | 100 ms |" in page


def test_runs_with_other_programs_are_separate() -> None:
    """They have fewer records, so they do not replace runs of Millstream and Kafka Streams only."""
    both = {"count": {"ours": entry(3), "java": entry(1)}}
    all_ = {"count": {"ours": entry(2), "java": entry(1), "quix": entry(0.125)}}
    results = [
        result("throughput", "2026-01-01", medians=both),
        result("throughput", "2026-01-02", medians=all_),
    ]
    page = report.pages(results)[report.PAGE]
    alone, _, other_programs = page.partition("## Other programs")
    assert "**3.00**" in alone
    assert "**2.00**" not in alone
    assert TITLES["quix"] not in alone
    assert f"| `count` | {TITLES['quix']} | 1,000 | 12,500 " in other_programs
    assert "| 200,000, **16.0** times | 100,000, **8.0** times |" in other_programs
    assert "2026-01-02-throughput.json" in other_programs
    assert "## Other programs" not in report.pages(results[:1])[report.PAGE]


def test_results_of_a_program_stay_if_a_newer_run_omits_it() -> None:
    """A newer run only replaces the results of its own programs."""
    many = {"ours": entry(2), "java": entry(1), "quix": entry(0.125), "spark": entry(0.5)}
    few = {"ours": entry(3), "java": entry(1), "quix": entry(0.25)}
    page = report.pages(
        [
            result("throughput", "2026-01-01", medians={"count": many}),
            result("throughput", "2026-01-02", medians={"count": few}, records=5_000_000),
        ]
    )[report.PAGE]
    assert f"| `count` | {TITLES['quix']} | 5,000,000 | 25,000 " in page
    assert "300,000, **12.0** times" in page
    assert "200,000, **16.0** times" not in page
    # With Millstream's result of the same run.
    assert f"| `count` | {TITLES['spark']} | 1,000 | 50,000 " in page
    assert "200,000, **4.0** times" in page
    assert all(f"2026-01-0{day}-throughput.json" in page for day in (1, 2))


def line(median: float) -> dict[str, Any]:
    """A line of the part scaling, with two sizes."""
    sizes = {1: Row.of("count", 1, [0.5]), 200: Row.of("count", 200, [median, 1, 9])}
    rows = with_ratios(list(sizes.values()))
    return Line("tasks", "µs per record", 3, rows, records=1_000).to_dict()


def test_the_newest_result_of_each_scaling_line_is_shown() -> None:
    """Lines of different runs are on one page, in a fixed order."""
    page = report.pages(
        [
            result("scaling", "2026-01-01", lines={"idle": line(2), "tasks": line(4)}),
            result("scaling", "2026-01-02", lines={"tasks": line(3)}),
        ]
    )[report.PAGE]
    assert "| count | 200 | 3.00 (1.00 to 9.00) | **6.00** |" in page
    assert "| count | 200 | 2.00 (1.00 to 9.00) | **4.00** |" in page
    assert "4.00 (1.00" not in page
    assert page.index("### Tasks of a thread") < page.index("### Idle")
    assert page.count("3 rounds of 1,000 records.") == 2
    assert "2026-01-01-scaling.json" in page


def test_a_scaling_line_with_kafka_streams_stays() -> None:
    """When Millstream is measured alone. It is replaced when both are measured again."""
    alone, newer = line(4), line(2)
    with_kafka_streams = line(3)
    with_kafka_streams["rows"] += [
        {**row, "what": f"count, {TITLES['java']}"} for row in with_kafka_streams["rows"]
    ]
    results = [
        result("scaling", "2026-01-01", lines={"tasks": with_kafka_streams}),
        result("scaling", "2026-01-02", lines={"tasks": alone}),
    ]
    page = report.pages(results)[report.PAGE]
    assert "4.00 (1.00 to 9.00)" in page
    assert page.count("3.00 (1.00 to 9.00)") == 2
    assert page.count("### Tasks of a thread") == 2
    assert page.count(", with Kafka Streams\n") == 1
    newer["rows"] += with_kafka_streams["rows"][2:]
    results.append(result("scaling", "2026-01-03", lines={"tasks": newer}))
    page = report.pages(results)[report.PAGE]
    assert "4.00 (1.00" not in page
    assert page.count("### Tasks of a thread") == 1


def test_the_page_begins_with_a_chart_and_a_compact_table() -> None:
    """The first sentence contains the range of the ratios and its condition."""
    medians = {job: {"ours": entry(ratio), "java": entry(1)} for job, ratio in RATIOS.items()}
    medians["alone"] = {"ours": entry(9)}
    made = report.pages([result("throughput", "2026-01-01", extension="0.1", medians=medians)])
    start = made[report.PAGE].partition("## Method")[0]
    assert "0.4 to 3.0 times" in start
    assert "2 cores shared with the broker, 1,000 records" in start
    assert "and the [C extension]" in start
    assert start.index(report.PICTURE.name) < start.index("| [count](#count) | 3.00 | 3.00 |")
    assert "alone" not in start
    texts = {each.text for each in ElementTree.fromstring(made[report.PICTURE]).iter()}
    assert {*RATIOS, "Whole run", "Warm"} <= texts
    assert "alone" not in texts


RATIOS = {"count": 3, "window": 2, "stateless": 0.4}


@pytest.mark.parametrize(
    ("extensions", "said"),
    [
        (["0.1"], "and the [C extension]"),
        ([None], "without the C extension"),
        (["0.1", None], "in a part of the results, the C extension"),
    ],
)
def test_the_front_page_has_three_ratios(extensions: list[str | None], said: str) -> None:
    """With their condition, and only if all three are measured."""
    results = [
        result(
            "throughput",
            f"2026-01-0{day}",
            extension=extension,
            medians={job: {"ours": entry(ratio), "java": entry(1)} for job, ratio in ratios},
        )
        for day, (extension, ratios) in enumerate(
            zip(extensions, (RATIOS.items(), [("count", 5)]), strict=False), 1
        )
    ]
    made = report.pages(results)[report.FRONT_PAGE]
    newest = "5.0×" if len(extensions) > 1 else "3.0×"
    assert f"| **{newest}** | **2.0×** | **0.4×** |" in made
    assert said in made
    assert f"relative to {TITLES['java']} once both are warm" in made
    # The rest of the page is unchanged.
    assert made.endswith(report.FRONT_PAGE.read_text(encoding="utf-8").partition("of figures")[2])
    two = {job: {"ours": entry(1), "java": entry(1)} for job in ("count", "window")}
    assert report.FRONT_PAGE not in report.pages([result("throughput", "1", medians=two)])


def test_guarantees_and_latencies_have_tables() -> None:
    """Cases are rows, in the order of the intervals."""
    cases = {f"count eos {ms} ms": {"ours": entry(2)} for ms in (1_000, 100, 30_000)}
    percentiles = {
        f"{name}_ms{end}": value
        for name in ("p50", "p99", "p999")
        for end, value in (("", 4.5), ("_spread", (4.0, 5.0)))
    }
    latencies = [{"job": "count", "rate": 1_000, "program": "ours", **percentiles}]
    page = report.pages(
        [
            result("guarantees", "2026-01-01", medians=cases),
            result("latency", "2026-01-01", medians=latencies, records=None),
        ]
    )[report.PAGE]
    assert "| `count` | `eos` | 100 ms | Millstream | 200,000" in page
    places = [page.index(f"| {ms} |") for ms in ("100 ms", "1,000 ms", "30,000 ms")]
    assert places == sorted(places)
    assert "| `count` | 1,000 | Millstream | 4.5 (4.0 to 5.0) |" in page


def test_versions_of_all_results_are_listed_once() -> None:
    """The table only contains the other versions."""
    medians = {"count": {"ours": entry(2)}}
    results = [
        result("throughput", "2026-01-01", medians=medians),
        result("throughput", "2026-01-02", medians=medians, keys=9, extension="0.2"),
    ]
    page = report.pages(results)[report.PAGE]
    assert "Versions in all runs: python 3.13.0.\n" in page
    assert page.count("python 3.13.0") == 1
    assert page.count("| C extension none |") == page.count("| C extension 0.2 |") == 1
