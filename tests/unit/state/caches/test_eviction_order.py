"""Goal: entries leave in the order of their last use, whatever happened between two evictions."""

from __future__ import annotations

import random
from collections import OrderedDict

from millstream.state.caches.cache_entries import CachedEntry
from millstream.state.caches.eviction import GONE, EvictionOrder


def test_exact_lru_against_an_ordered_dict() -> None:
    """Method: random adds, uses, removals and evictions; an OrderedDict tells the truth."""
    random.seed(11)
    order = EvictionOrder()
    truth: OrderedDict[int, CachedEntry] = OrderedDict()
    seq = 0
    for name in range(20_000):
        seq += 1
        what = random.choice(["add", "read", "read", "change", "flush", "remove", "evict", "evict"])
        if what == "add" or not truth:
            truth[name] = CachedEntry(b"", None, 1, seq)
            order.add(truth[name])
        elif what == "evict":
            assert order.pop() is truth.popitem(last=False)[1]
        elif what == "flush":
            for entry in truth.values():
                entry.used_seq = max(entry.used_seq, entry.dirty_seq)
                entry.dirty_seq = 0
        else:
            key = random.choice(list(truth)[:50])
            if what == "remove":
                truth.pop(key).used_seq = GONE
                continue
            truth.move_to_end(key)
            if what == "read":
                truth[key].used_seq = seq
            else:
                truth[key].dirty_seq = seq
    order.forget_gone()
    assert len(order) == len(truth)
    while truth:
        assert order.pop() is truth.popitem(last=False)[1]
    assert order.pop() is None
