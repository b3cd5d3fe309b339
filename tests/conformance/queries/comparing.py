"""Compares Millstream's answers with Kafka Streams', with the permitted differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from conformance.queries.scenarios import Scenario, Step

from millstream import ValueAndTimestamp, VersionedRecord, Windowed
from millstream.state.queries.requests import queries as q
from millstream.state.queries.requests.position import Position
from millstream.state.queries.requests.query_results import QueryResult, StateQueryResult

Answer = dict[str, Any]

#: Kafka Streams' exceptions and the corresponding errors.
ERRORS = {
    "NullPointerException": "NullKeyError",
    "IllegalArgumentException": "ValueError",
    "IllegalStateException": "IllegalStateError",
    "InvalidStateStoreException": "InvalidStateStoreError",
    "InvalidStateStorePartitionException": "InvalidStateStorePartitionError",
    "UnknownStateStoreException": "UnknownStateStoreError",
    "StreamsNotStartedException": "StreamsNotStartedError",
    "StreamsStoppedException": "StreamsStoppedError",
}
#: Errors after which a query can be retried.
_MOVED = ("StateStoreMigratedError", "StateStoreNotAvailableError")


def query_of(query: Step) -> q.Query:
    """Create the query of a step."""
    key, order = query.get("key"), query.get("order")
    descending = {"descending": True, "ascending": False}.get(order or "any")
    first, last = query.get("from"), query.get("to")
    match query["kind"]:
        case "key":
            return q.KeyQuery(key, query.get("skip_cache", False))
        case "timestamped_key":
            return q.TimestampedKeyQuery(key, query.get("skip_cache", False))
        case "range":
            return q.RangeQuery(query.get("lo"), query.get("hi"), bool(descending))
        case "timestamped_range":
            return q.TimestampedRangeQuery(query.get("lo"), query.get("hi"), bool(descending))
        case "window_key":
            return q.WindowKeyQuery(key, query["from"], query["to"])
        case "window_range":
            return q.WindowRangeQuery(query["from"], query["to"])
        case "sessions":
            return q.WindowRangeQuery.with_key(key)
        case "version":
            return q.VersionedKeyQuery(key, query.get("as_of"))
        case "versions":
            return q.MultiVersionedKeyQuery(key, first, last, descending)
        case kind:
            raise AssertionError(kind)


def recorded_value(value: Any) -> Any:
    """Convert a result to its recorded form."""
    match value:
        case None | str() | int():
            return value
        case ValueAndTimestamp():
            return {"value": recorded_value(value.value), "timestamp": value.timestamp}
        case VersionedRecord():
            return {
                "value": recorded_value(value.value),
                "timestamp": value.timestamp,
                "valid_to": value.valid_to,
            }
        case Windowed():
            return [recorded_value(value.key), value.window.start_ms, value.window.end_ms]
        case Iterable():
            return list(map(recorded_value, value))
        case _:
            raise AssertionError(value)


def recorded_position(position: Position, prefix: str) -> dict[str, dict[str, int]]:
    """Convert a position to its recorded form."""
    return {
        topic.removeprefix(prefix): {str(n): offset for n, offset in partitions.items()}
        for topic, partitions in position.as_dict().items()
    }


def recorded_result(result: QueryResult, prefix: str) -> Answer:
    """Convert the result of one partition to its recorded form."""
    answer: Answer = {}
    if result.is_success:
        answer["value"] = recorded_value(result.result)
    else:
        assert result.failure_reason is not None
        answer["failure"] = result.failure_reason.name
    position = recorded_position(result.position, prefix)
    return answer | {"position": position, "info": len(result.execution_info)}


def recorded_results(result: StateQueryResult, prefix: str) -> Answer:
    """Convert the results of all partitions to their recorded form."""
    results = dict(sorted(result.partition_results.items()))
    found = [each for each in results.values() if each.is_success and each.value is not None]
    answer: Answer = {
        "partitions": {str(n): recorded_result(each, prefix) for n, each in results.items()},
        "position": recorded_position(result.position, prefix),
        "only": ("none", "one", "several")[min(2, len(found))],
    }
    if result.global_result is not None:
        answer["global"] = recorded_result(result.global_result, prefix)
    return answer


def error_names(error: Exception) -> list[str]:
    """The names of an error's classes, the most specific one first."""
    return [kind.__name__ for kind in type(error).__mro__]


class ProcessedOffsets:
    """The numbers of processed records by topic and partition: the upper bounds of positions."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, int]] = {}

    def add(self, step: Step, partitions: int = 1) -> None:
        """Add the records of a step; a commit writes to each partition."""
        for record in step.get("records", ()):
            self._count(record["topic"], record["partition"])
        if step["do"] == "commit":
            for partition in range(partitions):
                self._count("in", partition)

    def _count(self, topic: str, partition: int) -> None:
        ends = self._ends.setdefault(topic, {})
        ends[str(partition)] = ends.get(str(partition), 0) + 1

    def reaches(self, bound: Mapping[str, Mapping[str, int]], partition: str) -> bool:
        """Whether all records up to a bound were processed in a partition."""
        return all(
            offsets.get(partition, -1) < self._ends.get(topic, {}).get(partition, 0)
            for topic, offsets in bound.items()
        )


def step_groups(scenario: Scenario) -> Iterator[list[Step]]:
    """The steps of a scenario, with consecutive queries in one group."""
    for are_queries, steps in groupby(scenario["steps"], lambda step: step["do"] == "ask"):
        if are_queries:
            yield list(steps)
        else:
            yield from ([step] for step in steps)


def expected_answer(step: Step, group: Sequence[Step]) -> Answer:
    """Return the expected answer: Kafka Streams', except for queries that skip the cache.

    Kafka Streams 4.3 loses `skip_cache` on the way to the store. The correct result is in its
    answer to a range query, which never reads the cache.

    Args:
        step: the query.
        group: the queries at the same time.
    """
    theirs: Answer = step["answer"]
    query = step.get("query", {})
    if not query.get("skip_cache") or "partitions" not in theirs:
        return theirs
    range_kind = "range" if query["kind"] == "key" else "timestamped_range"
    found = [
        other["answer"]["partitions"]
        for other in group
        if other["store"] == step["store"]
        and other.get("instance") == step.get("instance")
        and other.get("query", {}).get("kind") == range_kind
        and other["query"].get("lo") is None
        and other["query"].get("hi") is None
    ]
    partitions: dict[str, Answer] = {}
    for partition, answer in theirs["partitions"].items():
        uncached: Answer = next(
            (each[partition] for each in found if "value" in each.get(partition, {})), {}
        )
        if "value" not in uncached:
            partitions[partition] = answer
        elif "bound" in step and not _reaches(uncached["position"], step["bound"], partition):
            partitions[partition] = {"failure": "NOT_UP_TO_BOUND", "position": uncached["position"]}
        else:
            value = dict(map(tuple, uncached["value"])).get(query["key"])
            partitions[partition] = {"value": value, "position": uncached["position"]}
    return {**theirs, "partitions": partitions}


def difference(step: Step, theirs: Answer, ours: Answer, processed: ProcessedOffsets) -> str | None:
    """Describe the difference between two answers; None if they are equal or may differ.

    Args:
        step: the query.
        theirs: the expected answer.
        ours: Millstream's answer.
        processed: the processed records.
    """
    if "error" in theirs:
        return _error_difference(theirs["error"], ours)
    if "error" in ours:
        return f"fails with {ours['error'][0]}: {ours.get('message')}"
    if step.get("call") == "approximate_num_entries" and ours["value"] >= 0:
        # RocksDB's estimate depends on its files.
        return None
    if (step.get("store"), step.get("call")) == ("sessions-cached", "backward_find_sessions"):
        # Kafka Streams' cache omits sessions that start at the end of the range.
        return None if theirs["value"] == ours["value"][-len(theirs["value"]) :] else f"{ours}"
    if "view" in step:
        same = theirs["value"] == ours["value"]
        return None if same else f"gives {ours['value']} instead of {theirs['value']}"
    if "global" in theirs or "global" in ours:
        return _global_difference(theirs, ours)
    if step.get("info"):
        for answer in ours["partitions"].values():
            if answer["info"] == 0 and answer.get("failure") != "NOT_PRESENT":
                return f"has no execution info: {ours}"
    if theirs["partitions"].keys() != ours["partitions"].keys():
        return f"has answers of {ours['partitions']} instead of {theirs['partitions']}"
    for partition, expected in theirs["partitions"].items():
        answer = ours["partitions"][partition]
        if wrong := _result_difference(step, partition, expected, answer, processed):
            return f"partition {partition}: {wrong}"
    return None


def _global_difference(theirs: Answer, ours: Answer) -> str | None:
    answer, expected = (each.get("global", {}).get("failure") for each in (ours, theirs))
    if answer != expected:
        return f"answers {ours} for a global store instead of {theirs}"
    # Kafka Streams reports each requested partition as not present; Millstream has one answer.
    found = [each for each in ours["partitions"].values() if each.get("failure") != "NOT_PRESENT"]
    return f"finds {found} in a global store" if found or ours["only"] != "none" else None


def _error_difference(error: str, ours: Answer) -> str | None:
    if error == "UnsupportedOperationException":
        # Kafka Streams' versioned stores raise an error; others return an unknown query type.
        kinds = {each.get("failure") for each in ours.get("partitions", {}).values()}
        return (
            None
            if kinds == {"UNKNOWN_QUERY_TYPE"}
            else f"answers {ours} instead of UNKNOWN_QUERY_TYPE"
        )
    if error == "IndexOutOfBoundsException":
        # Kafka Streams' cache cannot search for an empty prefix.
        return None if ours.get("value") else f"gives {ours}"
    if error == "InvalidStateStorePartitionException" and ours.get("error", [""])[0] in _MOVED:
        # The partition exists on another instance.
        return None
    if ERRORS[error] not in ours.get("error", ()):
        return f"gives {ours} instead of {error}"
    return None


def _result_difference(
    step: Step, partition: str, theirs: Answer, ours: Answer, processed: ProcessedOffsets
) -> str | None:
    position = theirs.get("position") or {}
    if not _within(position, ours["position"], processed):
        return f"has position {ours['position']} instead of {position}"
    if theirs.get("failure") == "NOT_UP_TO_BOUND" and "failure" not in ours:
        # Millstream's positions include records that changed nothing; Kafka Streams' do not.
        reads = _reaches(ours["position"], step["bound"], partition)
        return None if reads else f"answers at {ours['position']}, which is before the bound"
    if (theirs.get("failure"), ours.get("failure")) == ("NOT_PRESENT", "DOES_NOT_EXIST"):
        # Kafka Streams does not distinguish partitions that do not exist from those of others.
        return None
    if theirs.get("failure") != ours.get("failure"):
        return f"answers {ours} instead of {theirs}"
    if theirs.get("value") != ours.get("value"):
        return f"gives {ours.get('value')} instead of {theirs.get('value')}"
    return None


def _within(theirs: Any, ours: Any, processed: ProcessedOffsets) -> bool:
    """Whether our position equals theirs, or is further by records that changed nothing."""
    behind = any(
        ours.get(topic, {}).get(n, -1) < offset
        for topic, offsets in theirs.items()
        for n, offset in offsets.items()
    )
    beyond = any(
        not processed.reaches({topic: {n: offset}}, n)
        for topic, offsets in ours.items()
        for n, offset in offsets.items()
    )
    return not behind and not beyond


def _reaches(position: Any, bound: Any, partition: str) -> bool:
    return all(
        position.get(topic, {}).get(partition, -1) >= offsets[partition]
        for topic, offsets in bound.items()
        if partition in offsets
    )
