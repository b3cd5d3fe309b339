"""Clickstream sessions: clicks in; visits, pages that people leave from, and bounces out.

    python examples/clickstream-sessions/clickstream_sessions.py --demo
    python examples/clickstream-sessions/clickstream_sessions.py --bootstrap-servers localhost:9092

A visit is what one visitor does until a pause of half an hour. When it is over it is told once,
with its pages, how long it took and where it came from; and a table counts from which page visits
end. With --demo it needs neither Kafka nor Spark: it invents the clicks of a day, some of them
late, and checks the visits against plain Python.
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
PAUSE, LATENESS = timedelta(minutes=30), timedelta(minutes=2)
PAUSE_MS, LATENESS_MS = (each // timedelta(milliseconds=1) for each in (PAUSE, LATENESS))


class Click(msgspec.Struct, frozen=True):
    """On a page, under the visitor as its key."""

    page: str
    at_ms: int


class Pages(msgspec.Struct, frozen=True):
    """Of a visit so far, by their times."""

    clicks: list[tuple[int, str]] = []


class Visit(msgspec.Struct, frozen=True):
    """When it is over."""

    entry: str
    exit: str
    pages: int
    seconds: int


CLICK, PAGES, VISIT = json_of(Click), json_of(Pages), json_of(Visit)


def with_click(visitor: str, click: Click, pages: Pages) -> Pages:
    """The visit with one more click, wherever in it that was."""
    return Pages(sorted([*pages.clicks, (click.at_ms, click.page)]))


def together(visitor: str, one: Pages, other: Pages) -> Pages:
    """Two visits that a late click has made one."""
    return Pages(sorted([*one.clicks, *other.clicks]))


def told(visitor: Windowed[str], pages: Pages) -> tuple[str, Visit]:
    """A visit that is over, under its visitor."""
    (first_ms, entry), (last_ms, end) = pages.clicks[0], pages.clicks[-1]
    return visitor.key, Visit(entry, end, len(pages.clicks), (last_ms - first_ms) // 1_000)


def sessions() -> Topology:
    """Clicks in, visits and counts of exits out."""
    builder = StreamsBuilder()
    visits = (
        builder.stream(
            CLICKS, key=STRING, value=CLICK, timestamp_extractor=lambda r, _: r.value.at_ms
        )
        .group_by_key()
        .windowed_by(SessionWindows(PAUSE, grace=LATENESS))
        .aggregate(Pages, with_click, together, store=Materialized("pages", value=PAGES))
        .suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
        .to_stream()
        .map(told)
    )
    visits.to(VISITS, key=STRING, value=VISIT)
    (
        visits.group_by(lambda visitor, visit: visit.exit, key=STRING, value=VISIT, name="by-exit")
        .count(store="exits")
        .to_stream()
        .to(EXITS, key=STRING, value=LONG)
    )
    return builder.build()


def invented() -> list[tuple[str, Click]]:
    """Clicks of a day, in the order in which they arrive: up to two minutes late."""
    dice = random.Random(5)
    arrivals = []
    for number in range(80):
        at_ms = dice.randrange(4 * 3_600_000)
        for _ in range(dice.randrange(1, 30)):
            at_ms += dice.choice((5_000, 20_000, 90_000, 2 * PAUSE_MS))
            late_ms = dice.randrange(LATENESS_MS) if dice.random() < 0.1 else 0
            page = dice.choice(("/", "/tea", "/mugs", "/cart"))
            arrivals.append((at_ms + late_ms, f"visitor-{number:02}", Click(page, at_ms)))
    # Much later somebody comes by, so that all visits before are over.
    end_ms = max(at_ms for at_ms, _, _ in arrivals) + 10 * PAUSE_MS
    arrivals.append((end_ms, "visitor-99", Click("/", end_ms)))
    return [(visitor, click) for _, visitor, click in sorted(arrivals, key=lambda one: one[0])]


def expected(clicks: list[tuple[str, Click]]) -> Counter[tuple[str, Visit]]:
    """The visits by plain Python, without the last one, which is not over."""
    found: Counter[tuple[str, Visit]] = Counter()
    by_visitor: dict[str, list[tuple[int, str]]] = {}
    for visitor, click in clicks[:-1]:
        by_visitor.setdefault(visitor, []).append((click.at_ms, click.page))
    for visitor, pages in by_visitor.items():
        visit: list[tuple[int, str]] = []
        for at_ms, page in [*sorted(pages), (10**12, "")]:
            if visit and at_ms - visit[-1][0] > PAUSE_MS:
                seconds = (visit[-1][0] - visit[0][0]) // 1_000
                found[visitor, Visit(visit[0][1], visit[-1][1], len(visit), seconds)] += 1
                visit = []
            visit.append((at_ms, page))
    return found


def demo() -> int:
    """Send a day of clicks through the topology; 0 if the visits are right."""
    clicks = invented()
    with TopologyTestDriver(sessions()) as driver:
        topic = driver.create_input_topic(CLICKS, key=STRING, value=CLICK)
        for visitor, click in clicks:
            topic.pipe_input(visitor, click)
        visits = driver.create_output_topic(VISITS, key=STRING, value=VISIT).read_key_values()
        exits = driver.create_output_topic(EXITS, key=STRING, value=LONG).read_key_values_to_map()
    bounces = sum(visit.pages == 1 for _, visit in visits)
    print(f"{len(clicks)} clicks, {len(visits)} visits, {bounces} of them of a single page")
    for page, count in sorted(exits.items(), key=lambda one: -one[1]):
        print(f"{count:4} visits end at {page}")
    right = Counter(visits) == expected(clicks) and sum(exits.values()) == len(visits)
    print("every visit is right" if right else "WRONG: visits are not what plain Python says")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes visits of clicks.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="invent the input, without a broker")
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
