"""The keys of a dict are returned in order, whatever was added and removed."""

from __future__ import annotations

import random

from millstream.state.storage.sorted_keys import SortedKeys


def test_keys_of_a_changing_dict_stay_in_order() -> None:
    """Random additions, removals and ranges, compared with `sorted()`; enough to split blocks."""
    random.seed(7)
    owner: dict[bytes, int] = {}
    keys = SortedKeys(owner)
    for _ in range(300):
        for _ in range(random.choice((0, 1, 3, 400))):
            owner[random.randbytes(random.choice((0, 1, 2)))] = 0
        for key in random.sample(sorted(owner), k=min(len(owner), random.choice((0, 1, 5, 200)))):
            del owner[key]
            keys.discard(key)
        low, high = random.randbytes(1), random.randbytes(1)
        assert keys.between(low, high) == [key for key in sorted(owner) if low <= key < high]
        assert keys.between(None, high) == [key for key in sorted(owner) if key < high]
        assert keys.between(low, None) == [key for key in sorted(owner) if low <= key]
    assert keys.between(None, None) == sorted(owner)


def test_single_additions_to_many_keys_split_blocks() -> None:
    """Fills a few blocks at once, then adds one key before each range."""
    owner = {b"%06d" % (2 * i): 0 for i in range(5_000)}
    keys = SortedKeys(owner)
    keys.between(None, None)
    for i in range(0, 5_000, 2):
        owner[b"%06d" % (2 * i + 1)] = 0
        assert keys.between(b"%06d" % (2 * i), b"%06d" % (2 * i + 2)) == [
            b"%06d" % (2 * i),
            b"%06d" % (2 * i + 1),
        ]
    assert keys.between(None, None) == sorted(owner)


def test_keys_are_cleared_with_the_dict() -> None:
    """A dict that is cleared and filled again returns only its new keys."""
    owner = {b"b": 0}
    keys = SortedKeys(owner)
    assert keys.between(None, None) == [b"b"]
    owner.clear()
    keys.clear()
    assert keys.between(None, None) == []
    owner[b"a"] = 0
    assert keys.between(None, None) == [b"a"]
