"""Records that are ignored because of their keys."""

from __future__ import annotations

import pytest

from millstream.subscriptions.operator.admission import IgnoredKeys


@pytest.mark.parametrize(
    ("ignored", "keys", "expected"),
    [
        ([], [b"a", None], []),
        (["a"], [], []),
        (["a"], [b"b", None, b"A", b"aa", b""], []),
        (["a", "ü"], [b"a", "ü".encode(), None, b"a"], [0, 1, 3]),
        ([""], [None, b""], [1]),
    ],
)
def test_keys_are_compared_as_utf8(
    ignored: list[str], keys: list[bytes | None], expected: list[int]
) -> None:
    """Whole keys, byte by byte; a null key is not an empty key."""
    assert IgnoredKeys(ignored).among(keys) == expected
