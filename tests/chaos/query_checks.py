"""Checks whether answers to queries are possible, given the whole input.

For each key, the application stores the number of its records and the id of the last one. Ids
increase, and each key is in one partition, so an answer shows the position of the store. It must
correspond to some prefix of the partition that is not before the bound of the query and not before
the position in the answer. Answers of active tasks, and of views that are not stale, must include
all records that were committed before the query.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A query and its result, as JSON; see `support.running.queried_instance`.
QueryRecord = Mapping[str, Any]


@dataclass
class Written:
    """The whole input.

    Args:
        partitions: offset, key and id of each record, by partition.
    """

    partitions: Mapping[int, Sequence[tuple[int, str, int]]]
    #: For each key, its partition and the offsets and ids of its records.
    keys: dict[str, tuple[int, list[int], list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for partition, records in self.partitions.items():
            for offset, key, number in records:
                _, offsets, ids = self.keys.setdefault(key, (partition, [], []))
                offsets.append(offset)
                ids.append(number)

    def at(self, key: str, offset: int) -> tuple[int, int] | None:
        """The count and the last id of a key after the records up to an offset."""
        _, offsets, ids = self.keys[key]
        count = bisect_right(offsets, offset)
        return (count, ids[count - 1]) if count else None

    def offsets_of(self, key: str, last: int) -> tuple[int, int]:
        """The offsets with this last id of a key: the first one, and the end."""
        _, offsets, ids = self.keys[key]
        index = ids.index(last)
        return offsets[index], offsets[index + 1] if index + 1 < len(offsets) else 1 << 62


@dataclass
class Committed:
    """The history of committed offsets, from regular observations."""

    _observed: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    _uncertain: list[tuple[float, float]] = field(default_factory=list)

    def note(self, at_s: float, counts: Mapping[int, int]) -> None:
        """Note the numbers of committed records of each partition at a time."""
        self._observed.append((at_s, dict(counts)))

    def note_uncertainty(self, began_s: float, ended_s: float) -> None:
        """Note a period in which a former owner may not have noticed the loss of a task."""
        self._uncertain.append((began_s, ended_s))

    def before(self, began_s: float, ended_s: float) -> Mapping[int, int]:
        """The numbers of committed records that an answer in this period must include."""
        if any(began <= ended_s and began_s <= ended for began, ended in self._uncertain):
            return {}
        index = bisect_right(self._observed, began_s, key=lambda each: each[0])
        return self._observed[index - 1][1] if index else {}


@dataclass
class Checks:
    """Checks answers.

    Args:
        written: the whole input.
        exactly_once: whether each record counts once. Otherwise, counts may be too high after a
            crash, but never too low.
        committed: the history of committed offsets.
    """

    written: Written
    exactly_once: bool
    committed: Committed = field(default_factory=Committed)
    #: The number of answers of active tasks that were compared with committed offsets.
    compared: int = 0
    #: The number of values in all answers.
    found: int = 0
    #: The number of queries without an answer, by reason.
    failures: dict[str, int] = field(default_factory=dict)

    def wrong(self, query: QueryRecord) -> str | None:
        """Describe the problem of an answer; None if the answer is possible."""
        if "error" in query:
            self._count_failure(query["error"])
            return None if query["typed"] else f"fails with {query['error']}: {query['message']}"
        bound = {int(n): offset for n, offset in query["bound"].items()}
        min_offsets = self._min_offsets(query)
        for name, answer in query["results"].items():
            if "failure" in answer:
                self._count_failure(answer["failure"])
                continue
            partition = int(name)
            at, required = answer.get("at"), bound.get(partition)
            if required is not None and (at is None or at < required):
                return f"partition {partition} answers at {at}, before the bound {required}"
            values = (
                answer["value"] if query["kind"] == "range" else {query["key"]: answer["value"]}
            )
            for home, of_home in self._by_home(query, partition, values).items():
                if problem := self._wrong_values(query, home, of_home, at, min_offsets.get(home)):
                    return f"partition {home} at {at}, minimum {min_offsets.get(home)}: {problem}"
        return None

    def _min_offsets(self, query: QueryRecord) -> Mapping[int, int]:
        """The last committed offset of each partition at the time of a query of active tasks."""
        if not query.get("active"):
            return {}
        ended_s, took_s = query["at_s"], query["took_ms"] / 1_000
        counts = self.committed.before(ended_s - took_s, ended_s)
        self.compared += bool(counts)
        return {partition: count - 1 for partition, count in counts.items()}

    def _by_home(
        self, query: QueryRecord, partition: int, values: Mapping[str, str | None]
    ) -> Mapping[int, Mapping[str, str | None]]:
        """Group values by partition; the answer of a view combines all partitions."""
        if partition >= 0:
            return {partition: values}
        homes: dict[int, dict[str, str | None]] = {}
        if query["kind"] == "range":
            homes = {number: {} for number in self.written.partitions}
        for key, value in values.items():
            homes.setdefault(self.written.keys[key][0], {})[key] = value
        return homes

    def _wrong_values(
        self,
        query: QueryRecord,
        partition: int,
        values: Mapping[str, str | None],
        at: int | None,
        min_offset: int | None,
    ) -> str | None:
        known = max((each for each in (at, min_offset) if each is not None), default=None)
        newest = -1 if known is None else known
        for key, value in values.items():
            home = self.written.keys[key][0]
            if home != partition:
                if value is not None:
                    return f"contains {key}, which belongs to partition {home}"
                continue
            if problem := self._wrong_value(key, value, known):
                return problem
            if value is not None:
                self.found += 1
                newest = max(newest, self.written.offsets_of(key, _parsed(value)[1])[0])
        if query["kind"] != "range" or (at is None and not query.get("active")):
            return None
        if self.exactly_once:
            return self._mixed_positions(partition, values, newest)
        return self._missing(partition, values, known)

    def _wrong_value(self, key: str, value: str | None, at: int | None) -> str | None:
        expected = None if at is None else self.written.at(key, at)
        if value is None:
            return f"lacks {key}, which must be {expected}" if expected else None
        count, last = _parsed(value)
        if last not in self.written.keys[key][2]:
            return f"has {value} for {key}, which has no such record"
        began, ends = self.written.offsets_of(key, last)
        if at is not None and ends <= at:
            return f"has {value} for {key}, which must be {expected}"
        counted = self.written.at(key, began)
        assert counted is not None
        exact = count == counted[0]
        if exact or (not self.exactly_once and count > counted[0]):
            return None
        return f"has {value} for {key}, which is {counted} after record {last}"

    def _mixed_positions(
        self, partition: int, values: Mapping[str, str | None], newest: int
    ) -> str | None:
        """Describe keys with a newer position than others: a partial batch or page."""
        for key, (home, _, _) in self.written.keys.items():
            if home == partition:
                expected, value = self.written.at(key, newest), values.get(key)
                if expected != (None if value is None else _parsed(value)):
                    return f"has {value} for {key}, which is {expected} at the position of others"
        return None

    def _missing(
        self, partition: int, values: Mapping[str, str | None], known: int | None
    ) -> str | None:
        """Describe a key that is missing in the answer."""
        for key, (home, offsets, _) in self.written.keys.items():
            is_due = known is not None and offsets[0] <= known
            if home == partition and key not in values and is_due:
                return f"lacks {key}, whose first record is at {offsets[0]}"
        return None

    def _count_failure(self, why: str) -> None:
        self.failures[why] = self.failures.get(why, 0) + 1


def _parsed(value: str) -> tuple[int, int]:
    count, last = value.split(":")
    return int(count), int(last)
