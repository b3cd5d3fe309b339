from __future__ import annotations

from millstream.state.storage.java_hash_order import JavaHashSet, java_hash


def test_hashes_equal_those_of_java() -> None:
    assert java_hash(b"") == 1
    assert java_hash(b"\x00") == 31
    assert java_hash(b"\xff\x80") == 31 * (31 - 1) - 128 & 0xFFFFFFFF


def test_the_order_equals_that_of_a_changelog_written_by_kafka_streams() -> None:
    keys = JavaHashSet()
    for start in (0, 3, 6, 9):
        keys.add(b"ab" + start.to_bytes(8, "big"))
    assert [key[-1] for key in keys.in_order()] == [9, 6, 0, 3]


def test_clearing_does_not_shrink_the_table() -> None:
    filled_before, fresh = JavaHashSet(), JavaHashSet()
    for number in range(100):
        filled_before.add(bytes((number,)))
    filled_before.clear()
    for keys in (filled_before, fresh):
        for number in (40, 3):
            keys.add(bytes((number,)))
    # 31 + 40 and 31 + 3: in a table of 16 places, both are at their remainder.
    assert list(fresh.in_order()) == [bytes((3,)), bytes((40,))]
    assert list(filled_before.in_order()) == [bytes((3,)), bytes((40,))]
    for keys in (filled_before, fresh):
        keys.add(bytes((17,)))
    # 31 + 17 = 48, the first place of a table of 16 but not of one of 256.
    assert fresh.in_order()[0] == bytes((17,))
    assert filled_before.in_order()[0] == bytes((3,))
