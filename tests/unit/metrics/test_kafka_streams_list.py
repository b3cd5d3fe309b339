"""Every metric in Kafka Streams' own list is available, or its absence is explained."""

from __future__ import annotations

import generate_metrics as page


def test_every_metric_is_available_or_its_absence_is_explained() -> None:
    """Detects missing metrics, and metrics that are wrongly listed as missing."""
    known = {(each.group, each.name) for each in page.kafka_streams()}
    there = page.available().keys()
    assert len(known) == 194
    assert known - there == page.UNAVAILABLE.keys()
    assert {group for group, _ in there - known} == {"millstream-thread-metrics"}


def test_recording_levels_are_those_of_kafka_streams_or_listed() -> None:
    """A level that is too low costs all users; with a level that is too high, expected metrics are
    missing."""
    there = page.available()
    others = {
        each.name
        for each in page.kafka_streams()
        if (level := there.get((each.group, each.name))) is not None and level.name != each.level
    }
    assert others == {
        *("process-rate", "process-total"),
        *("bytes-consumed-total", "bytes-produced-total"),
    }


def test_the_page_is_up_to_date() -> None:
    """docs/generators/generate_metrics.py writes the page."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.updated_page(text) == text
