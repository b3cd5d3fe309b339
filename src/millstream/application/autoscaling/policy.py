"""The scaling policy, which computes the required number of stream threads.

Threads are added when the backlog would take longer than the target to process, and removed when
fewer would have been enough during the whole cooldown. To avoid oscillation, the policy stores the
utilization of a saturated thread, which it measures while there is too much lag, and removes
threads only if the remaining ones would stay well below that utilization. It does not store the
throughput of a thread, because the throughput changes with the load: a lagging thread polls and
commits different amounts than a thread that keeps up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from millstream.spark.sessions.free_slots import FreeSlots

ScalingAction = Literal["add", "remove", "withdraw", "stay"]

#: The maximum utilization of the remaining threads, relative to saturation, after a removal.
TARGET_UTILIZATION: Final = 0.6
#: Rates are measured over a third of the lag target, within these bounds.
_MIN_WINDOW_MS: Final = 2_000
_MAX_WINDOW_MS: Final = 30_000
#: The window is extended while it contains fewer processed records than this and records are
#: waiting.
_MIN_WINDOW_RECORDS: Final = 8


@dataclass(frozen=True, slots=True)
class ScalingBounds:
    """The limits and targets from the settings.

    Args:
        lag_target_ms: the time in which a backlog should be processed.
        cooldown_ms: how long fewer threads must have been enough before some are removed.
        slot_timeout_ms: how long a thread beyond the minimum may wait for a slot.
    """

    min_threads: int
    max_threads: int
    lag_target_ms: int
    cooldown_ms: int
    slot_timeout_ms: int = 60_000

    @property
    def window_ms(self) -> int:
        return min(max(self.lag_target_ms // 3, _MIN_WINDOW_MS), _MAX_WINDOW_MS)


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The load of an instance at one moment.

    Args:
        now_ms: monotonic time.
        overdue: how many threads have waited too long for a slot.
        blocked_by: why the number of threads cannot change now, such as a rebalance; empty if it
            can.
        shares: whether a lagging task shares its thread with others.
        lags: waiting records by sub-topology, because processing times differ.
        processed: records processed so far, by sub-topology; never decreases.
        busy: the sum of the threads' utilizations: 1.5 for 3 threads that are half busy.
        work: `busy` by sub-topology; may be empty if there is only one.
        removal_obstacle: why removing a thread would force a restore elsewhere; empty if it would
            not.
    """

    now_ms: int
    threads: int
    overdue: int = 0
    blocked_by: str = ""
    tasks: int = 0
    shares: bool = True
    lags: Mapping[str, int] = field(default_factory=dict)
    processed: Mapping[str, int] = field(default_factory=dict)
    busy: float = 0.0
    max_busy: float = 0.0
    work: Mapping[str, float] = field(default_factory=dict)
    removal_obstacle: str = ""

    def work_of(self, subtopology: str) -> float:
        return self.work.get(subtopology, 0.0) if self.work else self.busy


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """A decision about the number of threads.

    Args:
        kind: the action. A withdrawn thread never got a slot, or lost it.
        wanted: the number of threads that the load requires, regardless of free slots.
        why: the reason, including the numbers.
    """

    kind: ScalingAction
    count: int
    wanted: int
    why: str


class ScalingPolicy:
    """Makes scaling decisions from consecutive samples. Not thread-safe."""

    def __init__(self, bounds: ScalingBounds) -> None:
        self._bounds = bounds
        self._samples: deque[LoadSample] = deque()
        #: The utilization of a saturated thread: below 1 if it waits for other systems.
        self._saturation = 1.0
        self._was_behind = False
        self._sufficient_since_ms: int | None = None
        self._sufficient = 0
        self._no_slot_until_ms: int | None = None
        #: The lags before the last change, and the part of each lag that arrived during that
        #: change.
        self._lags_before: Mapping[str, int] | None = None
        self._tolerated: dict[str, int] = {}

    def slot_unavailable(self, now_ms: int) -> None:
        """Handle a missing slot for an added thread: add no threads during the cooldown."""
        self._no_slot_until_ms = now_ms + self._bounds.cooldown_ms

    def decide(self, sample: LoadSample, free_slots: Callable[[], FreeSlots]) -> ScalingDecision:
        """Return the decision for a sample. Calls `free_slots` only to add threads."""
        bounds = self._bounds
        excess = min(sample.overdue, sample.threads - bounds.min_threads)
        if excess > 0:
            self._discard_samples()
            return ScalingDecision(
                "withdraw",
                excess,
                sample.threads - excess,
                f"{sample.overdue} of {sample.threads} threads have waited for a slot longer than "
                f"{_seconds(bounds.slot_timeout_ms)}",
            )
        if sample.blocked_by:
            self._discard_samples()
            return _stay(sample.threads, sample.blocked_by)
        if sample.threads < bounds.min_threads:
            wanted = bounds.min_threads
            return self._add(
                sample, wanted, free_slots, f"{sample.threads} threads, fewer than {wanted}"
            )
        self._samples.append(sample)
        while len(self._samples) > 2 and self._is_window(self._samples[1], sample):
            self._samples.popleft()
        if not self._is_window(self._samples[0], sample):
            return _stay(sample.threads, "still measuring")
        backlogs = self._backlogs(sample)
        return self._scale_out(sample, backlogs, free_slots) or self._scale_in(sample, backlogs)

    def _is_window(self, first: LoadSample, last: LoadSample) -> bool:
        """Return whether rates and trends can be measured between two samples.

        Lags are whole records, so a lag that shrinks slowly seems constant over few records.
        """
        passed_ms = last.now_ms - first.now_ms
        if passed_ms < self._bounds.window_ms:
            return False
        processed = sum(last.processed.values()) - sum(first.processed.values())
        is_measured = processed >= _MIN_WINDOW_RECORDS or not any(last.lags.values())
        return is_measured or passed_ms >= _MAX_WINDOW_MS

    def _backlogs(self, sample: LoadSample) -> list[_Backlog]:
        first = self._samples[0]
        passed_s = (sample.now_ms - first.now_ms) / 1_000
        before, self._lags_before = self._lags_before, None
        backlogs = []
        for subtopology in sorted({*sample.lags, *sample.processed}) or [""]:
            lags = [each.lags.get(subtopology, 0) for each in self._samples]
            # The minimum, because a past burst or a record in flight is not a backlog.
            lag = min(lags)
            if before is not None:
                self._tolerated[subtopology] = max(0, lags[-1] - before.get(subtopology, 0))
            growth = (lags[-1] - lags[0]) / passed_s
            # Records that arrived while threads changed are tolerated while the lag shrinks.
            tolerated = min(self._tolerated.get(subtopology, 0), lag)
            self._tolerated[subtopology] = tolerated if growth < 0 else 0
            done = sample.processed.get(subtopology, 0) - first.processed.get(subtopology, 0)
            backlogs.append(
                _Backlog(subtopology, lag, self._tolerated[subtopology], done / passed_s, growth)
            )
        return backlogs

    def _scale_out(
        self, sample: LoadSample, backlogs: Sequence[_Backlog], free_slots: Callable[[], FreeSlots]
    ) -> ScalingDecision | None:
        """Return a decision if the lag is too large, or else None."""
        backlog = max(backlogs, key=lambda each: each.actionable_s)
        target_s = self._bounds.lag_target_ms / 1_000
        is_behind = backlog.actionable_s > target_s
        if is_behind and sample.max_busy > 0:
            # The maximum so far, because the first measurements include time that was spent on the
            # rebalance.
            self._saturation = max(sample.max_busy, self._saturation if self._was_behind else 0.0)
        self._was_behind = is_behind
        if not is_behind:
            return None
        self._sufficient_since_ms = None
        reason = f"{backlog}; the target is {target_s:g} s"
        if backlog.ends_in_s <= target_s:
            return _stay(sample.threads, f"{reason}, but the backlog will be gone sooner")
        if not sample.shares:
            return _stay(
                sample.threads, f"{reason}, but each lagging task already has its own thread"
            )
        needed = math.ceil(self._work(sample, backlogs, target_s))
        # At most double the number of threads, then measure before adding more.
        wanted = min(max(needed, sample.threads + 1), 2 * sample.threads, self._bounds.max_threads)
        return self._add(sample, wanted, free_slots, reason)

    def _scale_in(self, sample: LoadSample, backlogs: Sequence[_Backlog]) -> ScalingDecision:
        """Remove threads if fewer would have been enough for the whole cooldown."""
        bounds = self._bounds
        backlog = max(backlogs, key=lambda each: (each.backlog_s, each.rate))
        busy = f"{backlog}; {sample.busy:.1f} of {sample.threads} threads are busy"
        enough = self._sufficient_threads(sample, backlogs)
        if enough >= sample.threads:
            self._sufficient_since_ms = None
            return _stay(sample.threads, busy)
        if self._sufficient_since_ms is None:
            self._sufficient_since_ms, self._sufficient = sample.now_ms, 0
        self._sufficient = max(self._sufficient, enough)
        lasted_ms = sample.now_ms - self._sufficient_since_ms
        reason = f"{busy}: {self._sufficient} would have been enough for {_seconds(lasted_ms)}"
        if lasted_ms < bounds.cooldown_ms:
            return _stay(self._sufficient, reason)
        if sample.removal_obstacle:
            return _stay(self._sufficient, f"{reason}; {sample.removal_obstacle}")
        # Remove at most half of the threads at a time.
        stay = max(self._sufficient, math.ceil(sample.threads / 2))
        return self._change(sample, "remove", sample.threads - stay, self._sufficient, reason)

    def _sufficient_threads(self, sample: LoadSample, backlogs: Sequence[_Backlog]) -> int:
        """Return how many threads would be enough, with a reserve."""
        bounds = self._bounds
        if any(backlog.backlog_s > bounds.lag_target_ms / 2_000 for backlog in backlogs):
            return sample.threads
        # Right after a backlog has been processed, the utilization reflects the arrivals, but the
        # measured rate still reflects the backlog.
        needed = (
            max(sample.busy / self._saturation, self._work(sample, backlogs)) / TARGET_UTILIZATION
        )
        return max(bounds.min_threads, min(math.ceil(round(needed, 3)), sample.tasks))

    def _work(
        self, sample: LoadSample, backlogs: Iterable[_Backlog], target_s: float | None = None
    ) -> float:
        """Return how many saturated threads the load requires.

        With `target_s`, this includes processing the backlog within that time.
        """
        work = 0.0
        for backlog in backlogs:
            waits = backlog.lag / target_s if target_s else 0.0
            more = (backlog.arriving + waits) / backlog.rate if backlog.rate > 0 else 1.0
            work += sample.work_of(backlog.subtopology) * more
        return work / self._saturation

    def _add(
        self, sample: LoadSample, wanted: int, free_slots: Callable[[], FreeSlots], reason: str
    ) -> ScalingDecision:
        useful = max(min(wanted, sample.tasks), self._bounds.min_threads)
        if useful <= sample.threads:
            if sample.threads >= self._bounds.max_threads:
                limit = f"the maximum is {self._bounds.max_threads} threads"
            else:
                limit = f"there are {sample.tasks} tasks for {sample.threads} threads"
            return _stay(wanted, f"{reason}; {limit}")
        if self._no_slot_until_ms is not None and sample.now_ms < self._no_slot_until_ms:
            left_ms = self._no_slot_until_ms - sample.now_ms
            return _stay(wanted, f"{reason}; no slot was free, next attempt in {_seconds(left_ms)}")
        found = free_slots()
        count = min(useful - sample.threads, found.free)
        if count > 0:
            why = f"{reason}; {found.free} slots are free"
            return self._change(sample, "add", count, wanted, why)
        if found.may_grow:
            # Spark starts executors for waiting tasks: let one thread wait.
            why = f"{reason}; no slot is free, requesting an executor from Spark"
            return self._change(sample, "add", 1, wanted, why)
        return _stay(wanted, f"{reason}; no slot is free")

    def _change(
        self, sample: LoadSample, kind: ScalingAction, count: int, wanted: int, why: str
    ) -> ScalingDecision:
        self._discard_samples()
        self._lags_before = {
            subtopology: lag - self._tolerated.get(subtopology, 0)
            for subtopology, lag in sample.lags.items()
        }
        return ScalingDecision(kind, count, wanted, why)

    def _discard_samples(self) -> None:
        """Discard the samples: they do not describe the threads after a change."""
        self._samples.clear()
        self._sufficient_since_ms = None


@dataclass(frozen=True, slots=True)
class _Backlog:
    """The backlog of a sub-topology and how fast it is processed.

    Args:
        tolerated: the part of the lag that arrived while threads changed.
        rate: records processed per second.
    """

    subtopology: str
    lag: int
    tolerated: int
    rate: float
    growth: float

    @property
    def arriving(self) -> float:
        return max(0.0, self.rate + self.growth)

    @property
    def backlog_s(self) -> float:
        """The time to process the backlog if no more records arrived.

        0 if nothing is processed: more threads could not reduce such a lag, which is caused, for
        example, by a transaction marker at the end of a topic.
        """
        return self.lag / self.rate if self.rate > 0 else 0.0

    @property
    def actionable_s(self) -> float:
        """The part of `backlog_s` that justifies more threads."""
        return (self.lag - self.tolerated) / self.rate if self.rate > 0 else 0.0

    @property
    def ends_in_s(self) -> float:
        return -self.lag / self.growth if self.growth < 0 else math.inf

    def __str__(self) -> str:
        if self.rate <= 0:
            return f"{self.lag:,} records are waiting, none are processed"
        where = f" in sub-topology {self.subtopology}" if self.subtopology else ""
        return (
            f"{self.lag:,} records are waiting{where}, {self.backlog_s:,.1f} s of work at "
            f"{self.rate:,.0f}/s; {self.arriving:,.0f}/s arrive"
        )


def _stay(wanted: int, why: str) -> ScalingDecision:
    return ScalingDecision("stay", 0, wanted, why)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:,.0f} s"
