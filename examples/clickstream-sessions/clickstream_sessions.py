"""Clickstream sessions: groups clicks into visits, and counts their last pages.

    python examples/clickstream-sessions/clickstream_sessions.py --demo
    python examples/clickstream-sessions/clickstream_sessions.py --bootstrap-servers localhost:9092

A visit ends after half an hour without clicks of the visitor. It is emitted once, when it is
complete, with its first and last page, the number of pages and its duration. A table counts the
visits by last page. With --demo, the program runs in the test driver, without Kafka or Spark: it
generates the clicks of a day, some of them late, and compares the visits with plain Python.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from datetime import timedelta

import msgspec

from millstream import (
    BufferConfig,
    KafkaStreams,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    Topology,
    Windowed,
)
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import TopologyTestDriver

CLICKS, VISITS, EXITS = "clicks", "visits", "exits"
GAP, GRACE = timedelta(minutes=30), timedelta(minutes=2)
GAP_MS, GRACE_MS = (each // timedelta(milliseconds=1) for each in (GAP, GRACE))


class Click(msgspec.Struct, frozen=True):
    """A click on a page; the key is the visitor."""

    page: str
    at_ms: int


class Pages(msgspec.Struct, frozen=True):
    """The clicks of a visit so far, in chronological order."""

    clicks: list[tuple[int, str]] = []


class Visit(msgspec.Struct, frozen=True):
    """A complete visit."""

    entry: str
    exit: str
    pages: int
    seconds: int


CLICK, PAGES, VISIT = json_of(Click), json_of(Pages), json_of(Visit)


def with_click(visitor: str, click: Click, pages: Pages) -> Pages:
    """Add a click in chronological order."""
    return Pages(sorted([*pages.clicks, (click.at_ms, click.page)]))


def merge(visitor: str, one: Pages, other: Pages) -> Pages:
    """Merge two visits that a late click connects."""
    return Pages(sorted([*one.clicks, *other.clicks]))


def complete(visitor: Windowed[str], pages: Pages) -> tuple[str, Visit]:
    """Return the visitor and the complete visit."""
    (first_ms, entry), (last_ms, end) = pages.clicks[0], pages.clicks[-1]
    return visitor.key, Visit(entry, end, len(pages.clicks), (last_ms - first_ms) // 1_000)


def sessions() -> Topology:
    """Build a topology that groups clicks into visits, and counts last pages."""
    builder = StreamsBuilder()
    visits = (
        builder.stream(
            CLICKS, key=STRING, value=CLICK, timestamp_extractor=lambda r, _: r.value.at_ms
        )
        .group_by_key()
        .windowed_by(SessionWindows(GAP, grace=GRACE))
        .aggregate(Pages, with_click, merge, store=Materialized("pages", value=PAGES))
        .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
        .to_stream()
        .map(complete)
    )
    visits.to(VISITS, key=STRING, value=VISIT)
    (
        visits.group_by(lambda visitor, visit: visit.exit, key=STRING, value=VISIT, name="by-exit")
        .count(store="exits")
        .to_stream()
        .to(EXITS, key=STRING, value=LONG)
    )
    return builder.build()


def sample_clicks() -> list[tuple[str, Click]]:
    """Generate the clicks of a day in order of arrival.

    Some of them are up to two minutes late.
    """
    rng = random.Random(5)
    arrivals: list[tuple[int, str, Click]] = []
    for number in range(80):
        at_ms = rng.randrange(4 * 3_600_000)
        for _ in range(rng.randrange(1, 30)):
            at_ms += rng.choice((5_000, 20_000, 90_000, 2 * GAP_MS))
            late_ms = rng.randrange(GRACE_MS) if rng.random() < 0.1 else 0
            page = rng.choice(("/", "/tea", "/mugs", "/cart"))
            arrivals.append((at_ms + late_ms, f"visitor-{number:02}", Click(page, at_ms)))
    # A much later click completes all earlier visits.
    end_ms = max(at_ms for at_ms, _, _ in arrivals) + 10 * GAP_MS
    arrivals.append((end_ms, "visitor-99", Click("/", end_ms)))
    return [(visitor, click) for _, visitor, click in sorted(arrivals, key=lambda one: one[0])]


def expected(clicks: list[tuple[str, Click]]) -> Counter[tuple[str, Visit]]:
    """Compute the visits in plain Python, without the last one, which is incomplete."""
    found: Counter[tuple[str, Visit]] = Counter()
    by_visitor: dict[str, list[tuple[int, str]]] = {}
    for visitor, click in clicks[:-1]:
        by_visitor.setdefault(visitor, []).append((click.at_ms, click.page))
    for visitor, pages in by_visitor.items():
        visit: list[tuple[int, str]] = []
        for at_ms, page in [*sorted(pages), (10**12, "")]:
            if visit and at_ms - visit[-1][0] > GAP_MS:
                seconds = (visit[-1][0] - visit[0][0]) // 1_000
                found[visitor, Visit(visit[0][1], visit[-1][1], len(visit), seconds)] += 1
                visit = []
            visit.append((at_ms, page))
    return found


def demo() -> int:
    """Process a day of clicks in the test driver; return 0 if the visits are correct."""
    clicks = sample_clicks()
    with TopologyTestDriver(sessions()) as driver:
        topic = driver.create_input_topic(CLICKS, key=STRING, value=CLICK)
        for visitor, click in clicks:
            topic.pipe_input(visitor, click)
        visits = driver.create_output_topic(VISITS, key=STRING, value=VISIT).read_key_values()
        exits = driver.create_output_topic(EXITS, key=STRING, value=LONG).read_key_values_to_map()
    bounces = sum(visit.pages == 1 for _, visit in visits)
    print(f"{len(clicks)} clicks, {len(visits)} visits, {bounces} of them with a single page")
    for page, count in sorted(exits.items(), key=lambda one: -one[1]):
        print(f"{count:4} visits end at {page}")
    right = Counter(visits) == expected(clicks) and sum(exits.values()) == len(visits)
    print("every visit is correct" if right else "WRONG: visits differ from plain Python")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Groups clicks into visits.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="clickstream-sessions", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(sessions(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
