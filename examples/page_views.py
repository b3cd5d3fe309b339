"""Counts views per page and minute, and the visits of each user.

    python examples/page_views.py --demo
    python examples/page_views.py --bootstrap-servers localhost:9092

With --demo, the program runs in the test driver, without Kafka or Spark: it generates ten minutes
of views, some of them out of order, prints the results, and compares them with plain Python.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from datetime import timedelta

from millstream import (
    KafkaStreams,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
    Windowed,
)
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

WINDOW_SIZE = timedelta(minutes=1)
#: Views that arrive later than this after the end of their minute are dropped.
GRACE = timedelta(seconds=10)
#: A visit ends after this time without a view.
VISIT_GAP = timedelta(seconds=30)

VIEWS, PER_MINUTE, VISITS = "page-views", "views-per-minute", "visits"

#: A view: its time in milliseconds, the user, and the page.
View = tuple[int, str, str]


def minute(page: Windowed[str], count: int) -> str:
    """Return the name of a minute of a page."""
    return f"{page.key} at minute {page.window.start_ms // 60_000}"


def visit(user: Windowed[str], pages: int | None) -> str:
    """Return the name of a visit, with the times of its first and last view."""
    return f"{user.key} from {user.window.start_ms} to {user.window.end_ms}"


def page_views() -> Topology:
    """Build a topology that counts views per page and minute, and per visit."""
    builder = StreamsBuilder()
    views = builder.stream(VIEWS, key=STRING, value=STRING)
    (
        views.group_by(lambda user, page: page, key=STRING, name="by-page")
        .windowed_by(TimeWindows(WINDOW_SIZE, grace=GRACE))
        .count(store="views-per-minute")
        .to_stream(minute)
        .to(PER_MINUTE, key=STRING)
    )
    (
        views.group_by_key()
        .windowed_by(SessionWindows(VISIT_GAP, grace=GRACE))
        .count(store="visits")
        .to_stream(visit)
        .to(VISITS, key=STRING)
    )
    return builder.build()


def sample_views() -> list[View]:
    """Generate ten minutes of views in order of arrival.

    Some of them are up to 25 seconds late.
    """
    rng = random.Random(3)
    arrivals: list[tuple[int, int, str, str]] = []
    for _ in range(3_000):
        viewed_ms = rng.randrange(600_000)
        late_ms = rng.randrange(25_000) if rng.random() < 0.1 else 0
        user = f"user-{rng.randrange(60)}"
        arrivals.append((viewed_ms + late_ms, viewed_ms, user, rng.choice(("home", "shop"))))
    return [(viewed_ms, user, page) for _, viewed_ms, user, page in sorted(arrivals)]


def expected(views: list[View]) -> tuple[Counter[str], int]:
    """Compute the counts in plain Python, and the number of views that are too late."""
    size_ms, grace_ms = (each // timedelta(milliseconds=1) for each in (WINDOW_SIZE, GRACE))
    counts: Counter[str] = Counter()
    newest_ms = late = 0
    for viewed_ms, _, page in views:
        # All pages are in one partition here, so they have the same stream time.
        newest_ms = max(newest_ms, viewed_ms)
        start_ms = viewed_ms // size_ms * size_ms
        if start_ms + size_ms + grace_ms > newest_ms:
            counts[f"{page} at minute {start_ms // 60_000}"] += 1
        else:
            late += 1
    return counts, late


def demo() -> int:
    """Process ten minutes in the test driver; return 0 if the counts are correct."""
    views = sample_views()
    with TopologyTestDriver(page_views()) as driver:
        inputs = driver.create_input_topic(VIEWS, key=STRING, value=STRING)
        for viewed_ms, user, page in views:
            inputs.pipe_input(user, page, viewed_ms)
        output = driver.create_output_topic(PER_MINUTE, key=STRING, value=LONG)
        counts = dict(output.read_key_values())
        visits = dict(driver.create_output_topic(VISITS, key=STRING, value=LONG).read_key_values())
    right, late = expected(views)
    for key, count in sorted(counts.items()):
        print(f"{key:20} {count:4}")
    # When a visit grows, its name changes, and the value of the old name becomes None.
    lengths = [pages for pages in visits.values() if pages is not None]
    print(f"{late} of {len(views)} views were too late for their minute")
    print(f"{len(lengths)} visits, the longest of {max(lengths)} pages")
    print("as expected" if counts == right else "NOT as expected")
    return 0 if counts == right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts page views by minute.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(application_id="page-views", bootstrap_servers=options.bootstrap_servers)
    KafkaStreams(page_views(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
