"""Defects of Kafka Streams that Millstream does not have.

The oracle records the calls of Kafka Streams that led to each error. They identify a defect, so
that the same error from another place is not excused.

A scenario with a defect is compared up to the failing event: `up_to_defect` returns the part of its
expectation for that event, and `before_defect` a scenario that the oracle runs to get the results
at its end. Millstream must behave as `docs/differences.md` says and continue after the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from conformance.oracle.process import Scenario

#: The aspects of a topology that do not depend on events.
_STATIC_ASPECTS: Final = ("describe", "topics", "subtopologies", "copartition")


class Defect(NamedTuple):
    """A defect of Kafka Streams.

    Attributes:
        row: the beginning of its row in `docs/differences.md`.
        category: the category of the error (see SCENARIOS.md).
        calls: the calls that lead to the error, innermost first, possibly with others in between.
    """

    row: str
    category: str
    calls: tuple[str, ...]


class Deviation(NamedTuple):
    """The occurrence of a defect in a scenario.

    Attributes:
        defect: the defect.
        event: the index of the failing event; None if the topology cannot be built.
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
        "reading a deleted sliding window from the cache of a store from `Stores`",
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
    """The first defect of Kafka Streams in a scenario, or None."""
    for error in _errors(scenario["expect"]):
        for defect in DEFECTS:
            if _matches(defect, error):
                return Deviation(defect, error.get("event"))
    return None


def before_defect(scenario: Scenario) -> Scenario | None:
    """Return a scenario for the oracle with the events before the defect, or None."""
    found = deviation(scenario)
    if found is None or not found.event:
        return None
    rest = {key: value for key, value in scenario.items() if key != "expect"}
    name = f"{scenario['name']}, before it fails"
    return {**rest, "name": name, "events": scenario["events"][: found.event]}


def up_to_defect(scenario: Scenario, event: int) -> Scenario:
    """Return the scenario before an event, with the corresponding part of its expectation."""
    expected = scenario["expect"]
    expectation: dict[str, Any] = {part: expected[part] for part in _STATIC_ASPECTS}
    expectation["outputs"], expectation["at"] = {}, {}
    for topic, causes in expected["at"].items():
        number = sum(cause < event for cause in causes)
        expectation["outputs"][topic] = expected["outputs"][topic][:number]
        expectation["at"][topic] = causes[:number]
    return {**scenario, "events": scenario["events"][:event], "expect": expectation}


def up_to_and_with_defect(scenario: Scenario, event: int | None) -> Scenario:
    """Return the scenario up to the failing event, which Millstream must process."""
    events = [] if event is None else scenario["events"][: event + 1]
    return {**scenario, "events": events, "expect": {}}


def _errors(expected: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The errors in the order of events: those of the processing exception handler, and the one
    that ended the scenario."""
    yield from expected.get("handled", [])
    if "error" in expected:
        yield expected["error"]


def _matches(defect: Defect, error: dict[str, Any]) -> bool:
    calls = iter(error.get("thrown", []))
    return error["category"] == defect.category and all(call in calls for call in defect.calls)
