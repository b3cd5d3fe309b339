"""Reset policies of the topics of a topology."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from millstream import StreamsBuilder, StreamsConfig
from millstream.runtime.start.topology_topics import reset_policy
from millstream.serdes import STRING


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="broker:1", **settings)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "earliest"),
        ({"consumer": {"auto.offset.reset": "LATEST"}}, "latest"),
        ({"main_consumer": {"auto.offset.reset": "by_duration:P1DT2H"}}, timedelta(hours=26)),
        ({"consumer": {"auto.offset.reset": timedelta(hours=1)}}, timedelta(hours=1)),
    ],
)
def test_most_specific_policy_is_used(given: dict[str, Any], expected: str | timedelta) -> None:
    """The policy of the source, by name or by pattern, precedes that of the config. Repartition
    topics lose nothing: none of their records was processed. A default is not explicit."""
    builder = StreamsBuilder()
    patterned = builder.stream(re.compile("logs-.*"), key=STRING, value=STRING, offset_reset="none")
    day = timedelta(days=1)
    named = builder.stream("named", key=STRING, value=STRING, offset_reset=day)
    plain = builder.stream("plain", key=STRING, value=STRING)
    for number, stream in enumerate((patterned, named, plain)):
        stream.select_key(lambda _, value: value).group_by_key().count(store=f"counts-{number}")
    policy = reset_policy(builder.build(), config(**given))
    assert policy("logs-1") == ("none", True)
    assert policy("named") == (day, True)
    assert policy("plain") == (expected, bool(given))
    assert policy("app-counts-2-repartition") == ("earliest", False)
