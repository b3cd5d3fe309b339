"""Computes click rates: joins impressions with clicks, and counts both.

The rates are per ad and ten minutes.

    python examples/match_ads.py --demo
    python examples/match_ads.py --bootstrap-servers localhost:9092

With --demo, the program runs in the test driver, without Kafka or Spark: it generates an hour of
impressions and clicks, prints the final rates, and compares them with plain Python.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from datetime import timedelta
from typing import Any

from millstream import (
    BufferConfig,
    JoinWindows,
    KafkaStreams,
    Materialized,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

#: A click within this time belongs to the impression; clicks may arrive a minute late.
CLICK_TIME = timedelta(minutes=5)
GRACE = timedelta(minutes=1)
WINDOW_SIZE = timedelta(minutes=10)

IMPRESSIONS, CLICKS, RATES = "impressions", "clicks", "click-rates"


def outcome(ad: str, button: str | None) -> tuple[str, int]:
    """Return an ad, and 1 if it was clicked, otherwise 0."""
    return ad, int(button is not None)


def count(ad: str, clicked: int, rate: dict[str, int]) -> dict[str, int]:
    """Add the outcome of an impression."""
    return {"shown": rate["shown"] + 1, "clicked": rate["clicked"] + clicked}


def click_rates() -> Topology:
    """Build a topology that computes the rates of each ad.

    All inputs are keyed by impression.
    """
    builder = StreamsBuilder()
    impressions = builder.stream(IMPRESSIONS, key=STRING, value=STRING)
    clicks = builder.stream(CLICKS, key=STRING, value=STRING)
    outcomes = impressions.left_join(
        clicks,
        outcome,
        JoinWindows(CLICK_TIME, before=timedelta(0), grace=GRACE),
        name="match",
        store_name="match",
    )
    (
        outcomes.map(lambda _, ad_and_clicked: ad_and_clicked)
        .group_by_key(key=STRING, value=JSON, name="by-ad")
        # An unmatched impression is forwarded up to `2 * (CLICK_TIME + GRACE)` after it was shown.
        .windowed_by(TimeWindows(WINDOW_SIZE, grace=2 * (CLICK_TIME + GRACE)))
        .aggregate(
            lambda: {"shown": 0, "clicked": 0}, count, store=Materialized("rates", value=JSON)
        )
        .suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), "final"))
        .to_stream(lambda window, _: f"{window.key} from {window.window.start_ms // 60_000} min")
        .to(RATES, key=STRING, value=JSON)
    )
    return builder.build()


def sample_events() -> list[tuple[int, str, str, str]]:
    """Generate an hour of records in chronological order.

    Each is (time in ms, topic, impression, ad or button).
    """
    rng = random.Random(7)
    events: list[tuple[int, str, str, str]] = []
    for number in range(2_000):
        shown_ms = rng.randrange(3_600_000)
        impression = f"page-{number}"
        events.append((shown_ms, IMPRESSIONS, impression, rng.choice(("books", "hats", "shoes"))))
        if rng.random() < 0.2:
            clicked_ms = shown_ms + rng.randrange(600_000)
            events.append((clicked_ms, CLICKS, impression, "buy"))
    return sorted(events)


def expected(events: list[tuple[int, str, str, str]]) -> dict[str, Any]:
    """Compute the rates in plain Python."""
    clicked_at = {impression: time for time, topic, impression, _ in events if topic == CLICKS}
    rates: dict[str, Counter[str]] = {}
    max_ms = CLICK_TIME // timedelta(milliseconds=1)
    size_ms = WINDOW_SIZE // timedelta(milliseconds=1)
    for shown_ms, topic, impression, ad in events:
        if topic == IMPRESSIONS:
            clicked_ms = clicked_at.get(impression, shown_ms + max_ms + 1)
            matched = clicked_ms <= shown_ms + max_ms
            # A match has the time of the click.
            time_ms = clicked_ms if matched else shown_ms
            rate = rates.setdefault(
                f"{ad} from {time_ms // size_ms * size_ms // 60_000} min",
                Counter(shown=0, clicked=0),
            )
            rate.update(shown=1, clicked=int(matched))
    return {key: dict(rate) for key, rate in rates.items()}


def demo() -> int:
    """Process an hour in the test driver; return 0 if the rates are correct."""
    events = sample_events()
    with TopologyTestDriver(click_rates(), initial_wall_clock_ms=0) as driver:
        for time_ms, topic, impression, value in events:
            driver.advance_wall_clock_time(timedelta(seconds=1))
            inputs = driver.create_input_topic(topic, key=STRING, value=STRING)
            inputs.pipe_input(impression, value, time_ms)
        # Later records close the last windows.
        for hours in (2, 3):
            driver.advance_wall_clock_time(timedelta(seconds=1))
            inputs = driver.create_input_topic(IMPRESSIONS, key=STRING, value=STRING)
            inputs.pipe_input(f"end-{hours}", "end", hours * 3_600_000)
        output = driver.create_output_topic(RATES, key=STRING, value=JSON)
        rates = dict(output.read_key_values())
    rates = {key: rate for key, rate in rates.items() if not key.startswith("end")}
    for key, rate in sorted(rates.items()):
        print(f"{key:20} {rate['clicked']:4} of {rate['shown']:4} clicked")
    right = rates == expected(events)
    print("as expected" if right else "NOT as expected")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Computes the click rates of ads.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the three topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(application_id="match-ads", bootstrap_servers=options.bootstrap_servers)
    KafkaStreams(click_rates(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
