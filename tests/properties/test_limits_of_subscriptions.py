"""Rate limits and key quotas, compared with models of Guava and Decaton."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from millstream.subscriptions.operator.key_quota import CountMinSketch, KeyCounts, KeyQuota
from millstream.subscriptions.operator.rate_limiter import RateLimiter

SECOND = 1_000_000
KEYS = st.sampled_from([None, *(bytes([65 + number]) for number in range(12))])


class GuavaModel:
    """A model of `AveragingRateLimiter`, with fractions instead of floating point."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.stored = Fraction(0)
        self.next_free_us = Fraction(0)

    def starts(self, now_us: int) -> bool:
        """Start a task, unless it would have to wait."""
        if now_us > self.next_free_us:
            gained = (now_us - self.next_free_us) * self.rate / SECOND
            self.stored = min(Fraction(self.rate), self.stored + gained)
            self.next_free_us = Fraction(now_us)
        if self.next_free_us > now_us:
            return False
        spent = min(Fraction(1), self.stored)
        self.stored -= spent
        self.next_free_us += (1 - spent) * SECOND / self.rate
        return True


@given(
    st.sampled_from([1, 2, 7, 50]),
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 60)), max_size=30),
)
def test_tasks_start_at_the_same_times_as_with_guava(
    rate: int, steps: list[tuple[int, int]]
) -> None:
    """With any number of requested permits, and pauses of any length."""
    limiter, guava, now_us = RateLimiter(rate, now_us=0), GuavaModel(rate), 0
    for passed_us, wanted in steps:
        now_us += passed_us
        count = min(wanted, limiter.permits(now_us))
        limiter.take(count)
        assert [guava.starts(now_us) for _ in range(count)] == [True] * count
        if count < wanted:
            assert not guava.starts(now_us)


@given(
    st.lists(
        st.tuples(st.integers(0, SECOND), st.integers(0, 200), st.sampled_from([0, 1, 3, 40, 40])),
        max_size=30,
    )
)
def test_any_interval_is_limited_to_its_rate_and_a_burst(steps: list[tuple[int, int, int]]) -> None:
    """Between any two times, with any changes of the rate."""
    limiter, now_us, rate = RateLimiter(40, now_us=0), 0, 40
    granted = 0  # permits that the rates have granted, in millionths
    starts: list[tuple[int, int]] = []
    for passed_us, wanted, next_rate in steps:
        now_us += passed_us
        granted += passed_us * rate
        count = min(wanted, limiter.permits(now_us))
        limiter.take(count)
        starts.append((granted, count))
        rate = next_rate
        limiter.change_rate(rate, now_us)
    for first in range(len(starts)):
        started = 0
        for granted, count in starts[first:]:
            started += count
            assert started * SECOND <= granted - starts[first][0] + (40 + 1) * SECOND


@given(st.lists(st.integers(0, 40), max_size=200), st.integers(0, 40))
def test_counts_are_never_too_low(keys: list[int], max_exact: int) -> None:
    """The counts of the first keys are exact."""
    counts, true = KeyCounts(max_exact), Counter[int]()
    for key in keys:
        true[key] += 1
        assert counts.add(key * 2**32 + key) >= true[key]
    first = list(dict.fromkeys(keys))[:max_exact]
    for key in range(41):
        found = counts.count(key * 2**32 + key)
        assert found == true[key] if key in first else found >= true[key]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60), st.data())
def test_a_sketch_counts_hashes_of_any_kind(hashes: list[int], data: st.DataObject) -> None:
    """With and without collisions of keys."""
    sketch, true = CountMinSketch(), Counter[int]()
    for _ in hashes:
        each = data.draw(st.sampled_from(hashes))
        true[each] += 1
        assert sketch.add(each) >= true[each]
    assert all(sketch.count(each) >= true[each] for each in hashes)


class DecatonModel:
    """A model of `WindowedKeyStat` with exact counts, one record at a time."""

    def __init__(self, rate: int, window_ms: int) -> None:
        self.rate, self.window_ms = rate, window_ms
        self.windows: list[tuple[int, Counter[bytes]]] = []

    def rate_above(self, key: bytes, now_ms: int) -> float | None:
        if not self.windows or now_ms - self.windows[-1][0] >= self.window_ms:
            self.windows = [*self.windows[-1:], (now_ms, Counter())]
        self.windows[-1][1][key] += 1
        if self.windows[0][0] < now_ms - 2 * self.window_ms:
            del self.windows[0]
        count = sum(counts[key] for _, counts in self.windows)
        span_ms = now_ms - self.windows[0][0]
        if span_ms < self.window_ms or Fraction(count * 1_000, span_ms) < self.rate:
            return None
        return count * 1_000 / span_ms


@given(
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 150), st.lists(KEYS, max_size=20)), max_size=30),
    st.sampled_from([0, 3, 100]),
)
def test_quota_violations_match_decaton(
    rate: int, steps: list[tuple[int, list[bytes | None]]], max_exact: int
) -> None:
    """Exactly the same while counts are exact; otherwise, no violation is missed."""
    quota = KeyQuota(rate, window=timedelta(milliseconds=100), max_exact=max_exact)
    decaton, now_ms = DecatonModel(rate, 100), 1_000
    for passed_ms, keys in steps:
        now_ms += passed_ms
        found = quota.violations(keys, now_ms)
        rates = {
            index: above
            for index, key in enumerate(keys)
            if key is not None and (above := decaton.rate_above(key, now_ms)) is not None
        }
        assert all(found[index] >= above for index, above in rates.items())
        if max_exact == 100:
            assert found == rates
