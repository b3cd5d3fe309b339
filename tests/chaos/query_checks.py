"""Whether answers to queries can be true, given all that was ever written.

The application keeps of each key how many of its records it has seen, and the id of the last one.
Ids count up, and each key is in one partition, so an answer says how far the store was: it must be
what some beginning of the partition gives, not before the bound of the question, and not before the
position that the answer itself tells. What an active task says, and so does every view that is not
stale, must have all that was committed when it was asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A question and what came of it, as JSON; see `support.running.queried_instance`.
Asked = Mapping[str, Any]


@dataclass
class Written:
    """All input.

    Args:
        partitions: by partition the offset, key and id of each record.
    """

    partitions: Mapping[int, Sequence[tuple[int, str, int]]]
    #: By key its partition, and its records: offsets and ids.
    keys: dict[str, tuple[int, list[int], list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for partition, records in self.partitions.items():
            for offset, key, number in records:
                _, offsets, ids = self.keys.setdefault(key, (partition, [], []))
                offsets.append(offset)
                ids.append(number)

    def at(self, key: str, offset: int) -> tuple[int, int] | None:
        """What is kept of a key when so much of its partition was read: how many, and the last."""
        _, offsets, ids = self.keys[key]
        count = bisect_right(offsets, offset)
        return (count, ids[count - 1]) if count else None

    def stands_for(self, key: str, last: int) -> tuple[int, int]:
        """Which offsets a last id stands for: the first one, and the one that ends it."""
        _, offsets, ids = self.keys[key]
        index = ids.index(last)
        return offsets[index], offsets[index + 1] if index + 1 < len(offsets) else 1 << 62


@dataclass
class Committed:
    """What was committed when, as it was seen from time to time."""

    _seen: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    _doubtful: list[tuple[float, float]] = field(default_factory=list)

    def note(self, at_s: float, counts: Mapping[int, int]) -> None:
        """By then at the latest, so many records of each partition were committed."""
        self._seen.append((at_s, dict(counts)))

    def doubt(self, began_s: float, ended_s: float) -> None:
        """Somebody who had a task may not have known in this time that it was another's."""
        self._doubtful.append((began_s, ended_s))

    def before(self, began_s: float, ended_s: float) -> Mapping[int, int]:
        """How many records of each partition whoever is asked in this time must know."""
        if any(began <= ended_s and began_s <= ended for began, ended in self._doubtful):
            return {}
        index = bisect_right(self._seen, began_s, key=lambda each: each[0])
        return self._seen[index - 1][1] if index else {}


@dataclass
class Checks:
    """Looks at answers.

    Args:
        written: all input.
        exactly_once: whether each record counts once. Without that, a record may be counted again
            after a crash, and what it changes may be told twice, but nothing may be missing.
        committed: what was committed when.
    """

    written: Written
    exactly_once: bool
    committed: Committed = field(default_factory=Committed)
    #: How many answers of active tasks were held against what was committed.
    held: int = 0
    #: How many answers had something in them.
    found: int = 0
    #: How often there was no answer, by the reason.
    refused: dict[str, int] = field(default_factory=dict)

    def wrong(self, asked: Asked) -> str | None:
        """What cannot be true of an answer; None if nothing is wrong with it."""
        if "error" in asked:
            self._refuse(asked["error"])
            return None if asked["typed"] else f"fails with {asked['error']}: {asked['message']}"
        bound = {int(n): offset for n, offset in asked["bound"].items()}
        least = self._least(asked)
        for name, said in asked["results"].items():
            if "failure" in said:
                self._refuse(said["failure"])
                continue
            partition = int(name)
            at, wanted = said.get("at"), bound.get(partition)
            if wanted is not None and (at is None or at < wanted):
                return f"partition {partition} answers at {at}, and {wanted} was asked for"
            values = said["value"] if asked["kind"] == "range" else {asked["key"]: said["value"]}
            for home, of_home in self._by_home(asked, partition, values).items():
                if problem := self._wrong_values(asked, home, of_home, at, least.get(home)):
                    return f"partition {home} at {at}, {least.get(home)} at least: {problem}"
        return None

    def _least(self, asked: Asked) -> Mapping[int, int]:
        """By partition the last offset that was committed when an active task was asked."""
        if not asked.get("active"):
            return {}
        ended_s, took_s = asked["at_s"], asked["took_ms"] / 1_000
        counts = self.committed.before(ended_s - took_s, ended_s)
        self.held += bool(counts)
        return {partition: count - 1 for partition, count in counts.items()}

    def _by_home(
        self, asked: Asked, partition: int, values: Mapping[str, str | None]
    ) -> Mapping[int, Mapping[str, str | None]]:
        """What was said of each partition; a view tells that of all of them as one."""
        if partition >= 0:
            return {partition: values}
        homes: dict[int, dict[str, str | None]] = {}
        if asked["kind"] == "range":
            homes = {number: {} for number in self.written.partitions}
        for key, told in values.items():
            homes.setdefault(self.written.keys[key][0], {})[key] = told
        return homes

    def _wrong_values(
        self,
        asked: Asked,
        partition: int,
        values: Mapping[str, str | None],
        at: int | None,
        least: int | None,
    ) -> str | None:
        known = max((each for each in (at, least) if each is not None), default=None)
        newest = -1 if known is None else known
        for key, told in values.items():
            home = self.written.keys[key][0]
            if home != partition:
                if told is not None:
                    return f"has {key}, which belongs to partition {home}"
                continue
            if problem := self._wrong_value(key, told, known):
                return problem
            if told is not None:
                self.found += 1
                newest = max(newest, self.written.stands_for(key, _parsed(told)[1])[0])
        if asked["kind"] != "range" or (at is None and not asked.get("active")):
            return None
        if self.exactly_once:
            return self._half(partition, values, newest)
        return self._missing(partition, values, known)

    def _wrong_value(self, key: str, told: str | None, at: int | None) -> str | None:
        due = None if at is None else self.written.at(key, at)
        if told is None:
            return f"does not have {key}, which is {due} there" if due else None
        count, last = _parsed(told)
        if last not in self.written.keys[key][2]:
            return f"says {told} of {key}, which has no such record"
        began, ends = self.written.stands_for(key, last)
        if at is not None and ends <= at:
            return f"says {told} of {key}, which is {due} there"
        counted = self.written.at(key, began)
        assert counted is not None
        exact = count == counted[0]
        if exact or (not self.exactly_once and count > counted[0]):
            return None
        return f"says {told} of {key}, which is {counted} when {last} is its last one"

    def _half(self, partition: int, values: Mapping[str, str | None], newest: int) -> str | None:
        """Whether some keys of a partition are further than others: half of a batch, of a page."""
        for key, (home, _, _) in self.written.keys.items():
            if home == partition:
                due, told = self.written.at(key, newest), values.get(key)
                if due != (None if told is None else _parsed(told)):
                    return f"says {told} of {key}, which is {due} where others are ({newest})"
        return None

    def _missing(
        self, partition: int, values: Mapping[str, str | None], known: int | None
    ) -> str | None:
        """Whether a key is not told that must be there."""
        for key, (home, offsets, _) in self.written.keys.items():
            is_due = known is not None and offsets[0] <= known
            if home == partition and key not in values and is_due:
                return f"does not have {key}, whose first record is at {offsets[0]}"
        return None

    def _refuse(self, why: str) -> None:
        self.refused[why] = self.refused.get(why, 0) + 1


def _parsed(told: str) -> tuple[int, int]:
    count, last = told.split(":")
    return int(count), int(last)
