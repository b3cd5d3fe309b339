"""Expected outputs of benchmark jobs, also for numbers of keys that need compact arrays."""

from __future__ import annotations

import struct
from itertools import groupby

import orjson
import pytest
import workload
from computations import cents
from harness.check import Numbers
from harness.load import Load, user_key

pytestmark = pytest.mark.extended

KEYS, RECORDS = 40, 30_000
LOAD = Load("not-used:9092", "events", RECORDS, KEYS)


def number(value: int) -> bytes:
    """A number as in outputs."""
    return struct.pack(">q", value)


def by_user(load: Load) -> list[list[tuple[int, int, int]]]:
    """Number, time and price of the records of each user."""
    users: list[list[tuple[int, int, int]]] = [[] for _ in range(load.keys)]
    for at, (timestamp, user, amount) in enumerate(load.events()):
        users[user].append((at, timestamp, cents(amount)))
    return users


@pytest.mark.parametrize(
    ("records", "is_right"),
    [
        ([(b"a", number(3)), (b"b", number(4)), (b"a", number(2))], True),
        ([(b"a", number(2)), (b"b", number(5))], False),
        ([(b"a", number(2))], False),
        ([(b"a", number(2)), (b"b", number(4)), (b"b", b"")], False),
        ([(b"a", number(2)), (b"b", number(4)), (b"c", number(1))], False),
        ([(b"a", number(2)), (b"c", number(1)), (b"b", number(4)), (b"c", b"")], True),
    ],
)
def test_the_last_number_of_each_key_is_compared(
    records: list[tuple[bytes, bytes]], is_right: bool
) -> None:
    """Wrong, missing, deleted and additional keys are detected."""
    numbers = Numbers()
    for key, value in ((b"a", 1), (b"b", 4), (b"a", 1)):
        numbers.add(key, value)
    assert (numbers.wrong(records, "keys") is None) is is_right


def test_sessions_end_with_the_gap() -> None:
    """Compared with the sessions of one user after the other."""
    load = Load("not-used:9092", "events", RECORDS, 10_000)
    job = workload.find("sessions")
    outputs: list[tuple[bytes, bytes]] = []
    for user, records in enumerate(by_user(load)):
        sessions: list[list[tuple[int, int, int]]] = []
        for record in records:
            if not sessions or record[1] - sessions[-1][-1][1] > 5_000:
                sessions.append([])
            sessions[-1].append(record)
        for each in sessions:
            times = struct.pack(">qq", each[-1][1], each[0][1])
            outputs.append((user_key(user) + times, number(sum(price for *_, price in each))))
    answer = job.answer(load)
    assert len(outputs) > 10_000
    assert job.wrong(answer, outputs) is None
    assert job.wrong(answer, outputs[1:]) is not None


def test_pairs_of_streams_are_within_five_seconds() -> None:
    """Compared with all pairs of orders and payments of each user."""
    pairs = [
        (order, payment, order_price - payment_price)
        for records in by_user(LOAD)
        for order, ordered_at, order_price in records
        for payment, paid_at, payment_price in records
        if not order % 2 and payment % 2 and abs(ordered_at - paid_at) <= 5_000
    ]
    job = workload.find("stream_stream")
    assert job.answer(LOAD) == (len(pairs), *(sum(each) for each in zip(*pairs, strict=True)))


def test_the_last_rows_of_tables_are_compared() -> None:
    """Users with one side only have no row; wrong, missing and additional rows are detected."""
    load = Load("not-used:9092", "events", 200, 100)
    job = workload.find("table_table")
    outputs: list[tuple[bytes, bytes]] = []
    for user, records in enumerate(by_user(load)):
        sides = {
            side: list(some)[-1]
            for side, some in groupby(
                sorted(records, key=lambda record: (record[0] % 2, record[0])),
                key=lambda record: record[0] % 2,
            )
        }
        if len(sides) == 2:
            (order, _, price), (payment, _, paid) = sides[0], sides[1]
            row = {"order": order, "payment": payment, "due": price - paid}
            outputs.append((user_key(user), orjson.dumps(row)))
    answer = job.answer(load)
    assert 10 < len(outputs) < load.keys
    assert job.wrong(answer, outputs) is None
    assert job.wrong(answer, outputs[1:]) is not None
    alone = next(user for user, records in enumerate(by_user(load)) if not records)
    assert job.wrong(answer, [*outputs, (user_key(alone), outputs[0][1])]) is not None
    key, value = outputs[-1]
    wrong = orjson.dumps({**orjson.loads(value), "due": 1})
    assert job.wrong(answer, [*outputs, (key, wrong)]) is not None
