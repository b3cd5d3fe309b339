"""The quota of keys, window by window."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.errors import ConfigError
from millstream.subscriptions.operator.key_quota import CountMinSketch, KeyQuota

SECOND = timedelta(seconds=1)


def test_burst_only_violates_after_the_first_window() -> None:
    """The average over a whole window counts, so there are no violations before the end of the
    first."""
    quota = KeyQuota(10, window=SECOND)
    assert quota.violations([b"a"] * 100, 0) == {}
    assert quota.violations([b"a"], 999) == {}
    assert quota.violations([b"b", b"a"], 1_000) == {1: 102.0}


def test_first_violation_is_the_record_that_reaches_the_quota() -> None:
    """Records of one call are checked one after the other."""
    quota = KeyQuota(3, window=SECOND)
    quota.violations([b"a"], 0)
    assert quota.violations([b"a", b"a", b"a"], 1_000) == {1: 3.0, 2: 4.0}


def test_key_with_a_lower_rate_is_accepted_again() -> None:
    """Counts that are older than two windows are dropped."""
    quota = KeyQuota(10, window=SECOND)
    quota.violations([b"a"] * 100, 0)
    assert quota.violations([b"a"], 1_000) == {0: 101.0}
    assert quota.violations([b"a"], 2_000) == {}


def test_quota_starts_again_after_a_long_pause() -> None:
    """A window that started long ago would make every rate look low; a new window has no rate
    yet."""
    quota = KeyQuota(1, window=SECOND)
    quota.violations([b"a"] * 100, 0)
    assert quota.violations([b"a"] * 100, 60_000) == {}
    assert quota.violations([b"a"], 61_000) == {0: 101.0}


def test_quota_of_zero_and_no_quota() -> None:
    """0 accepts no record. -1 accepts all records, and counts nothing for later."""
    none = KeyQuota(0, window=SECOND)
    none.violations([b"a"], 0)
    assert none.violations([b"b", None], 1_000) == {0: 1.0}
    unlimited = KeyQuota(-1, window=SECOND)
    unlimited.violations([b"a"] * 100, 0)
    unlimited.change_rate(1)
    assert unlimited.violations([b"a"], 1_000) == {}
    unlimited.change_rate(-1)
    unlimited.change_rate(5)
    assert (unlimited.rate, unlimited.violations([b"a"], 2_000)) == (5, {})


def test_window_must_have_a_length() -> None:
    """A quota over no time has no meaning."""
    with pytest.raises(ConfigError, match="window"):
        KeyQuota(1, window=timedelta(0))


def test_sketch_is_rarely_too_high() -> None:
    """With 20,000 keys of any hash, no count is too low, and few are too high."""
    hashes = [(number * 0x9E3779B97F4A7C15) % 2**64 - 2**63 for number in range(20_000)]
    sketch = CountMinSketch()
    for each in hashes:
        sketch.add(each)
    frequent = hashes[7]
    for _ in range(500):
        sketch.add(frequent)
    counts = [sketch.count(each) for each in hashes]
    assert counts[7] == 501
    assert min(counts) == 1
    assert sum(count > 1 for count in counts) <= 5
