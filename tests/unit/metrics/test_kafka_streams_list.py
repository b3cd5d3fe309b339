"""The metrics of Kafka Streams, as it lists them itself: each is there, or it is said why not."""

from __future__ import annotations

import generate_metrics as page


def test_each_metric_is_there_or_it_is_said_why_not() -> None:
    """A metric that is forgotten, or said to be missing though it is there, is seen."""
    known = {(each.group, each.name) for each in page.kafka_streams()}
    there = page.there().keys()
    assert len(known) == 194
    assert known - there == page.NOT_THERE.keys()
    assert {group for group, _ in there - known} == {"millstream-thread-metrics"}


def test_levels_are_kafka_streams_or_told() -> None:
    """What is recorded without asking costs everybody; what is not there is looked for in vain."""
    there = page.there()
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
    """python docs/generators/generate_metrics.py writes it."""
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.generated(text) == text
