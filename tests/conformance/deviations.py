"""Where Kafka Streams fails by a defect of its own, and millstream goes on.

The oracle tells with each error which calls of Kafka Streams have led to it. So a defect is known
by the very place where it shows, and nothing else is excused: the same error from elsewhere is one
that has to be shared.

A scenario that meets a defect is compared all the same, up to the event that fails: what
`up_to_defect` leaves of its expectation, and all that can be seen at the end of the scenario that
`before_defect` gives, once Kafka Streams was asked about that. And millstream has to deviate in the
way that `docs/differences.md` says, which is to get past that event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from conformance.oracle.process import Scenario

#: What is known of a topology, whatever happens in it.
_FROM_THE_BEGINNING: Final = ("describe", "topics", "subtopologies", "copartition")


class Defect(NamedTuple):
    """A defect of Kafka Streams.

    Attributes:
        row: what `docs/differences.md` calls it, the beginning of a row.
        category: of the error (see SCENARIOS.md).
        calls: what has been called where it is raised, innermost first. Others may lie between.
    """

    row: str
    category: str
    calls: tuple[str, ...]


class Deviation(NamedTuple):
    """That a scenario meets a defect.

    Attributes:
        defect: which one.
        event: the index of the event that fails; None where the topology cannot be built.
    """

    defect: Defect
    event: int | None


DEFECTS: Final = (
    Defect(
        "left join of a stream and a versioned table with grace, record without a key",
        "null_error",
        ("RocksDBTimeOrderedKeyValueBuffer.put", "KStreamKTableJoinProcessor.process"),
    ),
    Defect(
        "sliding windows with a time difference of 0",
        "illegal_argument",
        (
            "TimeWindow.<init>",
            "KStreamSlidingWindowAggregate$KStreamSlidingWindowAggregateProcessor.process",
        ),
    ),
    Defect(
        "`backward_find_sessions` of a persistent session store with caching",
        "illegal_argument",
        (
            "SessionWindow.<init>",
            "CachingSessionStore$CacheIteratorWrapper.segmentUpperRangeFixedSize",
        ),
    ),
    Defect(
        "sessions with a gap of more than a minute in a cached store in RocksDB",
        "illegal_state",
        (
            "CachingSessionStore$CacheIteratorWrapper.setCacheKeyRange",
            "CachingSessionStore.findSessions",
        ),
    ),
    Defect(
        "a sliding window that was deleted, looked at in the cache of a store from `Stores`",
        "null_error",
        (
            "WindowedTimestampedHeadersStoreToWindowedTimestampedStoreAdapter"
            "$KeyValueIteratorAdapter.next",
            "KStreamSlidingWindowAggregate$KStreamSlidingWindowAggregateProcessor.process",
        ),
    ),
    Defect(
        "`optimize=True`, some topologies",
        "streams_error",
        ("InternalStreamsBuilder.mergeRepartitionTopics",),
    ),
)


def deviation(scenario: Scenario) -> Deviation | None:
    """The first defect that Kafka Streams meets in a scenario; None if it meets none."""
    for error in _errors(scenario["expect"]):
        for defect in DEFECTS:
            if _is_met(defect, error):
                return Deviation(defect, error.get("event"))
    return None


def before_defect(scenario: Scenario) -> Scenario | None:
    """The events before the one that meets a defect, for the oracle; None if there are none."""
    found = deviation(scenario)
    if found is None or not found.event:
        return None
    question = {key: value for key, value in scenario.items() if key != "expect"}
    name = f"{scenario['name']}, before it fails"
    return {**question, "name": name, "events": scenario["events"][: found.event]}


def up_to_defect(scenario: Scenario, event: int) -> Scenario:
    """A scenario that ends before an event, with what its expectation says about that."""
    expected = scenario["expect"]
    kept: dict[str, Any] = {part: expected[part] for part in _FROM_THE_BEGINNING}
    kept["outputs"], kept["at"] = {}, {}
    for topic, causes in expected["at"].items():
        number = sum(cause < event for cause in causes)
        kept["outputs"][topic] = expected["outputs"][topic][:number]
        kept["at"][topic] = causes[:number]
    return {**scenario, "events": scenario["events"][:event], "expect": kept}


def up_to_and_with_defect(scenario: Scenario, event: int | None) -> Scenario:
    """A scenario that ends with the event that meets a defect, for millstream to get past."""
    events = [] if event is None else scenario["events"][: event + 1]
    return {**scenario, "events": events, "expect": {}}


def _errors(expected: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In the order of events: those that were left to the processing exception handler, and that
    which was the end."""
    yield from expected.get("handled", [])
    if "error" in expected:
        yield expected["error"]


def _is_met(defect: Defect, error: dict[str, Any]) -> bool:
    calls = iter(error.get("thrown", []))
    return error["category"] == defect.category and all(call in calls for call in defect.calls)
