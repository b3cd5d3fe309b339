"""The quota of keys, window by window."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millstream.errors import ConfigError
from millstream.subscriptions.limits.key_counts import CountMinSketch
from millstream.subscriptions.limits.key_quota import KeyQuota

SECOND = timedelta(seconds=1)


def test_a_burst_violates_after_the_first_window_only() -> None:
    """The average over a whole window counts, so nobody is judged before one is over."""
    quota = KeyQuota(10, window=SECOND)
    assert quota.violations([b"a"] * 100, 0) == {}
    assert quota.violations([b"a"], 999) == {}
    assert quota.violations([b"b", b"a"], 1_000) == {1: 102.0}


def test_the_record_at_which_the_quota_is_reached_is_the_first_to_violate() -> None:
    """Records of one call are judged one after the other."""
    quota = KeyQuota(3, window=SECOND)
    quota.violations([b"a"], 0)
    assert quota.violations([b"a", b"a", b"a"], 1_000) == {1: 3.0, 2: 4.0}


def test_a_key_that_calms_down_is_let_through_again() -> None:
    """What is older than two windows is forgotten."""
    quota = KeyQuota(10, window=SECOND)
    quota.violations([b"a"] * 100, 0)
    assert quota.violations([b"a"], 1_000) == {0: 101.0}
    assert quota.violations([b"a"], 2_000) == {}


def test_after_a_long_silence_it_begins_anew() -> None:
    """A window that began long ago would make every rate look low; one of now has no rate yet."""
    quota = KeyQuota(1, window=SECOND)
    quota.violations([b"a"] * 100, 0)
    assert quota.violations([b"a"] * 100, 60_000) == {}
    assert quota.violations([b"a"], 61_000) == {0: 101.0}


def test_a_quota_of_none_and_no_quota() -> None:
    """0 lets none through, -1 all, and counts nothing that could count later."""
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


def test_a_window_must_last() -> None:
    """A quota over no time means nothing."""
    with pytest.raises(ConfigError, match="window"):
        KeyQuota(1, window=timedelta(0))


def test_a_sketch_is_hardly_ever_too_high() -> None:
    """With 20,000 keys of any hash: no count is too low, and few are too high."""
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
