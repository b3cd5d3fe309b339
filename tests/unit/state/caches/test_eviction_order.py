"""Entries are evicted in the order of their last use, whatever happens between two evictions."""

from __future__ import annotations

import random
from collections import OrderedDict

from millstream.state.caches.cache_entries import GONE, CachedEntry, EvictionOrder


def test_exact_lru_against_an_ordered_dict() -> None:
    """Random adds, uses, removals and evictions, compared with an `OrderedDict`."""
    random.seed(11)
    order = EvictionOrder()
    expected: OrderedDict[int, CachedEntry] = OrderedDict()
    seq = 0
    for name in range(20_000):
        seq += 1
        step = random.choice(["add", "read", "read", "change", "flush", "remove", "evict", "evict"])
        if step == "add" or not expected:
            expected[name] = CachedEntry(b"", None, 1, seq)
            order.add(expected[name])
        elif step == "evict":
            assert order.pop() is expected.popitem(last=False)[1]
        elif step == "flush":
            for entry in expected.values():
                entry.used_seq = max(entry.used_seq, entry.dirty_seq)
                entry.dirty_seq = 0
        else:
            key = random.choice(list(expected)[:50])
            if step == "remove":
                expected.pop(key).used_seq = GONE
                continue
            expected.move_to_end(key)
            if step == "read":
                expected[key].used_seq = seq
            else:
                expected[key].dirty_seq = seq
    order.drop_removed()
    assert len(order) == len(expected)
    while expected:
        assert order.pop() is expected.popitem(last=False)[1]
    assert order.pop() is None
