"""How many stream threads there should be, decided from numbers alone.

Threads are added when what waits would take longer than the target to be worked off, and removed
when fewer would have been enough for the whole cool-down. The two never follow each other in a
circle: how busy a thread seems that has its hands full was seen when something waited too long, and
threads are only removed if those that stay would seem well below that. Only this is remembered, not
how many records a thread could do: that changes with the load, as a thread that is behind commits
and polls other amounts at a time than one that keeps up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from millstream.spark.sessions.free_slots import FreeSlots

Kind = Literal["add", "remove", "withdraw", "stay"]

#: Threads that stay must be busy for no more than this part of their time.
ROOM: Final = 0.6
#: The rate and the trend are taken over a third of the lag target, within these bounds.
_WINDOW_LEAST_MS: Final = 2_000
_WINDOW_MOST_MS: Final = 30_000
#: The window is longer while fewer records than this were processed in it and some still wait.
_WINDOW_LEAST_RECORDS: Final = 8


@dataclass(frozen=True, slots=True)
class Bounds:
    """What was asked for.

    Args:
        least: threads that there are in any case.
        most: threads beyond which none is added.
        lag_target_ms: within which what waits is to be worked off.
        cooldown_ms: for how long fewer threads must have been enough.
        slot_patience_ms: how long a thread beyond the least may wait for a slot.
    """

    least: int
    most: int
    lag_target_ms: int
    cooldown_ms: int
    slot_patience_ms: int = 60_000

    @property
    def window_ms(self) -> int:
        """Over how long rates are taken."""
        return min(max(self.lag_target_ms // 3, _WINDOW_LEAST_MS), _WINDOW_MOST_MS)


@dataclass(frozen=True, slots=True)
class Look:
    """How things are at one moment.

    Args:
        now_ms: of a clock that never goes back.
        threads: how many there are, those left out that are to go.
        late: how many of them have waited for a slot for longer than they may.
        unsettled: why nothing may change just now, such as a rebalance; empty if it may.
        tasks: how many are processed here.
        shares: whether a task that lags shares its thread with others.
        lags: records that wait, by sub-topology, whose records take unlike long.
        processed: records processed so far, in the same way; these only grow.
        busy: how many threads' time is spent with work: 1.5 of 3 threads that are half busy.
        fullest: the part of its time that the thread with the most work spends with it.
        work: `busy` by sub-topology; may be empty where there is one.
        alone: why no thread can go without its state being rebuilt elsewhere; empty if one can.
    """

    now_ms: int
    threads: int
    late: int = 0
    unsettled: str = ""
    tasks: int = 0
    shares: bool = True
    lags: Mapping[str, int] = field(default_factory=dict)
    processed: Mapping[str, int] = field(default_factory=dict)
    busy: float = 0.0
    fullest: float = 0.0
    work: Mapping[str, float] = field(default_factory=dict)
    alone: str = ""

    def work_of(self, part: str) -> float:
        """How many threads' time a sub-topology takes."""
        return self.work.get(part, 0.0) if self.work else self.busy


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done.

    Args:
        kind: a thread that is withdrawn never got a slot, or lost it.
        count: of threads.
        wanted: how many threads the load asks for, whatever there is room for.
        why: with the numbers that it rests on.
    """

    kind: Kind
    count: int
    wanted: int
    why: str


class Decisions:
    """Decides again and again. Called by one thread at a time.

    Args:
        bounds: what was asked for.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._looks: deque[Look] = deque()
        #: How busy a thread seems that has its hands full: less than 1 where it waits for others.
        self._full = 1.0
        self._was_behind = False
        self._enough_since_ms: int | None = None
        self._enough = 0
        self._no_room_until_ms: int | None = None
        #: The lags before a change of ours, and how much of them that change has made.
        self._lags_before: Mapping[str, int] | None = None
        self._excused: dict[str, int] = {}

    def no_room(self, now_ms: int) -> None:
        """A thread that was added has got no slot: none is tried for a while."""
        self._no_room_until_ms = now_ms + self._bounds.cooldown_ms

    def decide(self, look: Look, room: Callable[[], FreeSlots]) -> Decision:
        """What is to be done now.

        Args:
            look: how things are.
            room: tells where threads could run. Only asked if one is to be added.
        """
        bounds = self._bounds
        beyond = min(look.late, look.threads - bounds.least)
        if beyond > 0:
            self._forget()
            return Decision(
                "withdraw",
                beyond,
                look.threads - beyond,
                f"{look.late} of {look.threads} threads have had no slot for more than "
                f"{_seconds(bounds.slot_patience_ms)}",
            )
        if look.unsettled:
            self._forget()
            return Decision("stay", 0, look.threads, look.unsettled)
        if look.threads < bounds.least:
            wanted = bounds.least
            return self._add(look, wanted, room, f"{look.threads} threads, at least {wanted}")
        self._looks.append(look)
        while len(self._looks) > 2 and self._is_window(self._looks[1], look):
            self._looks.popleft()
        if not self._is_window(self._looks[0], look):
            return Decision("stay", 0, look.threads, "it is looked at for a while first")
        paces = self._paces(look)
        return self._by_lag(look, paces, room) or self._by_room_to_spare(look, paces)

    def _is_window(self, first: Look, last: Look) -> bool:
        """Whether rates and trends can be measured between two looks.

        Lags are whole records, so a lag that shrinks slowly seems constant over few records.
        """
        passed_ms = last.now_ms - first.now_ms
        if passed_ms < self._bounds.window_ms:
            return False
        processed = sum(last.processed.values()) - sum(first.processed.values())
        is_measured = processed >= _WINDOW_LEAST_RECORDS or not any(last.lags.values())
        return is_measured or passed_ms >= _WINDOW_MOST_MS

    def _paces(self, look: Look) -> list[_Pace]:
        first = self._looks[0]
        passed_s = (look.now_ms - first.now_ms) / 1_000
        before, self._lags_before = self._lags_before, None
        paces = []
        for part in sorted({*look.lags, *look.processed}) or [""]:
            lags = [each.lags.get(part, 0) for each in self._looks]
            # A burst that is gone again, or the one record that is on its way, is no backlog.
            lag = min(lags)
            if before is not None:
                self._excused[part] = max(0, lags[-1] - before.get(part, 0))
            growth = (lags[-1] - lags[0]) / passed_s
            # Nor is what has come while threads changed, if they work it off beside the rest.
            excused = min(self._excused.get(part, 0), lag)
            self._excused[part] = excused if growth < 0 else 0
            done = look.processed.get(part, 0) - first.processed.get(part, 0)
            paces.append(_Pace(part, lag, self._excused[part], done / passed_s, growth))
        return paces

    def _by_lag(
        self, look: Look, paces: Sequence[_Pace], room: Callable[[], FreeSlots]
    ) -> Decision | None:
        """What follows if too much waits; None if that is not so."""
        pace = max(paces, key=lambda each: each.to_answer_s)
        target_s = self._bounds.lag_target_ms / 1_000
        is_behind = pace.to_answer_s > target_s
        if is_behind and look.fullest > 0:
            # The most that was seen while it lasts: at first some of the time was a rebalance's.
            self._full = max(look.fullest, self._full if self._was_behind else 0.0)
        self._was_behind = is_behind
        if not is_behind:
            return None
        self._enough_since_ms = None
        story = f"{pace}, more than {target_s:g} s"
        if pace.ends_in_s <= target_s:
            return Decision("stay", 0, look.threads, f"{story}, but it will be gone before")
        if not look.shares:
            return Decision(
                "stay", 0, look.threads, f"{story}, but of tasks that have a thread each"
            )
        needed = math.ceil(self._work(look, paces, target_s))
        # Twice as many at a time: what they achieve together is measured before more come.
        wanted = min(max(needed, look.threads + 1), 2 * look.threads, self._bounds.most)
        return self._add(look, wanted, room, story)

    def _by_room_to_spare(self, look: Look, paces: Sequence[_Pace]) -> Decision:
        """Whether fewer threads would have been enough all the time."""
        bounds = self._bounds
        pace = max(paces, key=lambda each: (each.backlog_s, each.rate))
        busy = f"{pace}; {look.busy:.1f} of {look.threads} threads are busy"
        enough = self._enough_for(look, paces)
        if enough >= look.threads:
            self._enough_since_ms = None
            return Decision("stay", 0, look.threads, busy)
        if self._enough_since_ms is None:
            self._enough_since_ms, self._enough = look.now_ms, 0
        self._enough = max(self._enough, enough)
        lasted_ms = look.now_ms - self._enough_since_ms
        story = f"{busy}: {self._enough} would be enough, for {_seconds(lasted_ms)} now"
        if lasted_ms < bounds.cooldown_ms:
            return Decision("stay", 0, self._enough, story)
        if look.alone:
            return Decision("stay", 0, self._enough, f"{story}; {look.alone}")
        # Half of them at a time, as with those that are added.
        stay = max(self._enough, math.ceil(look.threads / 2))
        return self._change(look, "remove", look.threads - stay, self._enough, story)

    def _enough_for(self, look: Look, paces: Sequence[_Pace]) -> int:
        """How many threads would be enough, with room to spare."""
        bounds = self._bounds
        if any(pace.backlog_s > bounds.lag_target_ms / 2_000 for pace in paces):
            return look.threads
        # Right behind a backlog they are as busy as what comes in makes them, but the rate is still
        # that of working it off.
        needed = max(look.busy / self._full, self._work(look, paces)) / ROOM
        return max(bounds.least, min(math.ceil(round(needed, 3)), look.tasks))

    def _work(self, look: Look, paces: Iterable[_Pace], target_s: float | None = None) -> float:
        """How many threads have their hands full with what comes in, and with what waits if that is
        to be worked off within a time."""
        work = 0.0
        for pace in paces:
            waits = pace.lag / target_s if target_s else 0.0
            more = (pace.arriving + waits) / pace.rate if pace.rate > 0 else 1.0
            work += look.work_of(pace.part) * more
        return work / self._full

    def _add(self, look: Look, wanted: int, room: Callable[[], FreeSlots], story: str) -> Decision:
        useful = max(min(wanted, look.tasks), self._bounds.least)
        if useful <= look.threads:
            if look.threads >= self._bounds.most:
                limit = f"there may be {self._bounds.most} threads at most"
            else:
                limit = f"there are {look.tasks} tasks for {look.threads} threads"
            return Decision("stay", 0, wanted, f"{story}; {limit}")
        if self._no_room_until_ms is not None and look.now_ms < self._no_room_until_ms:
            left_ms = self._no_room_until_ms - look.now_ms
            return Decision(
                "stay", 0, wanted, f"{story}; no slot was free, tried again in {_seconds(left_ms)}"
            )
        found = room()
        count = min(useful - look.threads, found.free)
        if count > 0:
            return self._change(look, "add", count, wanted, f"{story}; {found.free} slots are free")
        if found.may_grow:
            # Spark starts executors for tasks that wait: one thread waits to ask for them.
            return self._change(
                look, "add", 1, wanted, f"{story}; no slot is free, it asks Spark for an executor"
            )
        return Decision("stay", 0, wanted, f"{story}; no slot is free")

    def _change(self, look: Look, kind: Kind, count: int, wanted: int, why: str) -> Decision:
        self._forget()
        excused = self._excused
        self._lags_before = {part: lag - excused.get(part, 0) for part, lag in look.lags.items()}
        return Decision(kind, count, wanted, why)

    def _forget(self) -> None:
        """What was seen of other threads says nothing about those to come."""
        self._looks.clear()
        self._enough_since_ms = None


@dataclass(frozen=True, slots=True)
class _Pace:
    """How fast what waits is worked off.

    Args:
        part: the number of the sub-topology.
        lag: records that wait.
        excused: those of them that have come while threads changed.
        rate: records processed per second.
        growth: how many more of them wait after a second; negative where they get fewer.
    """

    part: str
    lag: int
    excused: int
    rate: float
    growth: float

    @property
    def arriving(self) -> float:
        """Records that come in per second."""
        return max(0.0, self.rate + self.growth)

    @property
    def backlog_s(self) -> float:
        """How long it would take to work off what waits, if nothing came in. What nobody works on,
        such as a transaction's marker at the end of a topic, is no work for further threads."""
        return self.lag / self.rate if self.rate > 0 else 0.0

    @property
    def to_answer_s(self) -> float:
        """The part of it that says that there are too few threads."""
        return (self.lag - self.excused) / self.rate if self.rate > 0 else 0.0

    @property
    def ends_in_s(self) -> float:
        """When nothing will wait any more, if all goes on like this."""
        return -self.lag / self.growth if self.growth < 0 else math.inf

    def __str__(self) -> str:
        if self.rate <= 0:
            return f"{self.lag:,} records wait, none is processed"
        where = f" in sub-topology {self.part}" if self.part else ""
        return (
            f"{self.lag:,} records wait{where}, {self.backlog_s:,.1f} s of work at "
            f"{self.rate:,.0f}/s; {self.arriving:,.0f}/s come in"
        )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:,.0f} s"
