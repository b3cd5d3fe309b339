"""Our answers beside Kafka Streams': in the same words, and what may differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from conformance.queries.scenarios import Scenario, Step

from millstream import ValueAndTimestamp, VersionedRecord, Windowed
from millstream.query.requests import queries as q
from millstream.query.requests.answers import QueryResult, StateQueryResult
from millstream.query.requests.position import Position

Answer = dict[str, Any]

#: Kafka Streams' errors, and ours.
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
#: What is worth another try.
_MOVED = ("StateStoreMigratedError", "StateStoreNotAvailableError")


def query_of(asked: Step) -> q.Query:
    """The query that a step asks."""
    key, order = asked.get("key"), asked.get("order")
    descending = {"descending": True, "ascending": False}.get(order or "any")
    first, last = asked.get("from"), asked.get("to")
    match asked["kind"]:
        case "key":
            return q.KeyQuery(key, asked.get("skip_cache", False))
        case "timestamped_key":
            return q.TimestampedKeyQuery(key, asked.get("skip_cache", False))
        case "range":
            return q.RangeQuery(asked.get("lo"), asked.get("hi"), bool(descending))
        case "timestamped_range":
            return q.TimestampedRangeQuery(asked.get("lo"), asked.get("hi"), bool(descending))
        case "window_key":
            return q.WindowKeyQuery(key, asked["from"], asked["to"])
        case "window_range":
            return q.WindowRangeQuery(asked["from"], asked["to"])
        case "sessions":
            return q.WindowRangeQuery.with_key(key)
        case "version":
            return q.VersionedKeyQuery(key, asked.get("as_of"))
        case "versions":
            return q.MultiVersionedKeyQuery(key, first, last, descending)
        case kind:
            raise AssertionError(kind)


def told(value: Any) -> Any:
    """A result as the recording tells it."""
    match value:
        case None | str() | int():
            return value
        case ValueAndTimestamp():
            return {"value": told(value.value), "timestamp": value.timestamp}
        case VersionedRecord():
            return {
                "value": told(value.value),
                "timestamp": value.timestamp,
                "valid_to": value.valid_to,
            }
        case Windowed():
            return [told(value.key), value.window.start_ms, value.window.end_ms]
        case Iterable():
            return list(map(told, value))
        case _:
            raise AssertionError(value)


def told_position(position: Position, prefix: str) -> dict[str, dict[str, int]]:
    """A position as the recording tells it."""
    return {
        topic.removeprefix(prefix): {str(n): offset for n, offset in partitions.items()}
        for topic, partitions in position.as_dict().items()
    }


def told_result(result: QueryResult, prefix: str) -> Answer:
    """What one partition says."""
    answer: Answer = {}
    if result.is_success:
        answer["value"] = told(result.result)
    else:
        assert result.failure_reason is not None
        answer["failure"] = result.failure_reason.name
    position = told_position(result.position, prefix)
    return answer | {"position": position, "info": len(result.execution_info)}


def told_results(result: StateQueryResult, prefix: str) -> Answer:
    """What all partitions say."""
    results = dict(sorted(result.partition_results.items()))
    found = [each for each in results.values() if each.is_success and each.value is not None]
    answer: Answer = {
        "partitions": {str(n): told_result(each, prefix) for n, each in results.items()},
        "position": told_position(result.position, prefix),
        "only": ("none", "one", "several")[min(2, len(found))],
    }
    if result.global_result is not None:
        answer["global"] = told_result(result.global_result, prefix)
    return answer


def error_names(error: Exception) -> list[str]:
    """What an error is, the most special name first."""
    return [kind.__name__ for kind in type(error).__mro__]


class Fed:
    """What of each topic the application has processed: how far a position may be."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[str, int]] = {}

    def take(self, step: Step, partitions: int = 1) -> None:
        """Note what a step writes; a commit writes to each partition."""
        for record in step.get("records", ()):
            self._note(record["topic"], record["partition"])
        if step["do"] == "commit":
            for partition in range(partitions):
                self._note("in", partition)

    def _note(self, topic: str, partition: int) -> None:
        ends = self._ends.setdefault(topic, {})
        ends[str(partition)] = ends.get(str(partition), 0) + 1

    def reaches(self, bound: Mapping[str, Mapping[str, int]], partition: str) -> bool:
        """Whether all that a bound asks of a partition was processed."""
        return all(
            offsets.get(partition, -1) < self._ends.get(topic, {}).get(partition, 0)
            for topic, offsets in bound.items()
        )


def moments(scenario: Scenario) -> Iterator[list[Step]]:
    """The steps of a scenario, one by one, or all that are asked before anything else happens."""
    for asked, steps in groupby(scenario["steps"], lambda step: step["do"] == "ask"):
        if asked:
            yield list(steps)
        else:
            yield from ([step] for step in steps)


def due(step: Step, moment: Sequence[Step]) -> Answer:
    """The answer that is due: Kafka Streams', unless the cache is to be left out.

    Kafka Streams 4.3 forgets that wish on the way to the store. What is right then, its answer to a
    range tells, which never looks into the cache.

    Args:
        step: what is asked.
        moment: whatever is asked at the same time.
    """
    theirs: Answer = step["answer"]
    asked = step.get("query", {})
    if not asked.get("skip_cache") or "partitions" not in theirs:
        return theirs
    wanted = "range" if asked["kind"] == "key" else "timestamped_range"
    found = [
        other["answer"]["partitions"]
        for other in moment
        if other["store"] == step["store"]
        and other.get("instance") == step.get("instance")
        and other.get("query", {}).get("kind") == wanted
        and other["query"].get("lo") is None
        and other["query"].get("hi") is None
    ]
    partitions: dict[str, Answer] = {}
    for partition, said in theirs["partitions"].items():
        below: Answer = next(
            (each[partition] for each in found if "value" in each.get(partition, {})), {}
        )
        if "value" not in below:
            partitions[partition] = said
        elif "bound" in step and not _reaches(below["position"], step["bound"], partition):
            partitions[partition] = {"failure": "NOT_UP_TO_BOUND", "position": below["position"]}
        else:
            value = dict(map(tuple, below["value"])).get(asked["key"])
            partitions[partition] = {"value": value, "position": below["position"]}
    return {**theirs, "partitions": partitions}


def difference(step: Step, theirs: Answer, ours: Answer, fed: Fed) -> str | None:
    """What is wrong with our answer; None if it is the one that is due, or differs as it may.

    Args:
        step: what is asked.
        theirs: the answer that is due.
        ours: our answer.
        fed: what was processed.
    """
    if "error" in theirs:
        return _error_difference(theirs["error"], ours)
    if "error" in ours:
        return f"fails with {ours['error'][0]}: {ours.get('message')}"
    if step.get("call") == "approximate_num_entries" and ours["value"] >= 0:
        # It is what RocksDB thinks, which depends on what it has written where.
        return None
    if (step.get("store"), step.get("call")) == ("sessions-cached", "backward_find_sessions"):
        # Their cache forgets sessions that start at the last moment.
        return None if theirs["value"] == ours["value"][-len(theirs["value"]) :] else f"{ours}"
    if "view" in step:
        same = theirs["value"] == ours["value"]
        return None if same else f"gives {ours['value']} instead of {theirs['value']}"
    if "global" in theirs or "global" in ours:
        return _global_difference(theirs, ours)
    if step.get("info"):
        for said in ours["partitions"].values():
            if said["info"] == 0 and said.get("failure") != "NOT_PRESENT":
                return f"does not tell what was done: {ours}"
    if theirs["partitions"].keys() != ours["partitions"].keys():
        return f"is answered by {ours['partitions']} instead of {theirs['partitions']}"
    for partition, expected in theirs["partitions"].items():
        said = ours["partitions"][partition]
        if wrong := _result_difference(step, partition, expected, said, fed):
            return f"partition {partition}: {wrong}"
    return None


def _global_difference(theirs: Answer, ours: Answer) -> str | None:
    said, expected = (each.get("global", {}).get("failure") for each in (ours, theirs))
    if said != expected:
        return f"says {ours} of a global store, they {theirs}"
    # They say of each partition that was named that it is not there; we say it once, for all.
    found = [each for each in ours["partitions"].values() if each.get("failure") != "NOT_PRESENT"]
    return f"finds {found} in a global store" if found or ours["only"] != "none" else None


def _error_difference(error: str, ours: Answer) -> str | None:
    if error == "UnsupportedOperationException":
        # Versioned stores raise where others say that they do not know the query.
        kinds = {each.get("failure") for each in ours.get("partitions", {}).values()}
        return None if kinds == {"UNKNOWN_QUERY_TYPE"} else f"says {ours}, not that it is unknown"
    if error == "IndexOutOfBoundsException":
        # Their cache cannot search for what begins with nothing.
        return None if ours.get("value") else f"gives {ours}"
    if error == "InvalidStateStorePartitionException" and ours.get("error", [""])[0] in _MOVED:
        # The partition is there, but not here: another instance has it.
        return None
    if ERRORS[error] not in ours.get("error", ()):
        return f"gives {ours} instead of {error}"
    return None


def _result_difference(
    step: Step, partition: str, theirs: Answer, ours: Answer, fed: Fed
) -> str | None:
    position = theirs.get("position") or {}
    if not _within(position, ours["position"], fed):
        return f"is at {ours['position']}, theirs at {position}"
    if theirs.get("failure") == "NOT_UP_TO_BOUND" and "failure" not in ours:
        # What was read and changed nothing counts for us, and does not for them.
        reads = _reaches(ours["position"], step["bound"], partition)
        return None if reads else f"answers at {ours['position']}, which is not up to the bound"
    if (theirs.get("failure"), ours.get("failure")) == ("NOT_PRESENT", "DOES_NOT_EXIST"):
        # They do not know how many there are.
        return None
    if theirs.get("failure") != ours.get("failure"):
        return f"says {ours}, they {theirs}"
    if theirs.get("value") != ours.get("value"):
        return f"gives {ours.get('value')} instead of {theirs.get('value')}"
    return None


def _within(theirs: Any, ours: Any, fed: Fed) -> bool:
    """Whether we are where they are, or further with what was read and changed nothing."""
    behind = any(
        ours.get(topic, {}).get(n, -1) < offset
        for topic, offsets in theirs.items()
        for n, offset in offsets.items()
    )
    beyond = any(
        not fed.reaches({topic: {n: offset}}, n)
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
