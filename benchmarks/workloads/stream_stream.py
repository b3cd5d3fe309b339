"""Two streams joined by time."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

import orjson
from arguments import Arguments
from computations import cents
from harness.load import Load
from payments import INPUT, PAYMENTS, fill_payments, settled
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import JoinWindows, StreamsBuilder, Topology
from millstream.serdes import JSON, STRING

BEFORE_MS = AFTER_MS = 5_000
GRACE_MS = 60_000

#: The number of pairs, and the sums of their fields.
Sums = tuple[int, int, int, int]


class StreamStream(Workload[Sums]):
    """Joins orders with the payments of the same user within 5 seconds before and after. The
    records alternate between the two topics. Half of the orders find a payment."""

    input = INPUT
    other_inputs = (PAYMENTS,)

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        counted = CountingSerde(JSON, progress)
        orders = builder.stream(arguments.input_topic, key=STRING, value=counted)
        payments = builder.stream(f"{arguments.input_topic}-{PAYMENTS}", key=STRING, value=counted)
        windows = JoinWindows(
            timedelta(milliseconds=AFTER_MS), grace=timedelta(milliseconds=GRACE_MS)
        )
        orders.join(payments, settled, windows, key=STRING, value=JSON, other_value=JSON).to(
            arguments.output_topic, key=STRING, value=JSON
        )
        return builder.build()

    def fill(self, load_: Load) -> None:
        """Write both topics."""
        fill_payments(load_)

    def answer(self, load_: Load) -> Sums:
        """Return the sums of all pairs."""
        #: The number and price of records that may still find a partner, by side and user, and
        #: their times. Users without such records are omitted, because there may be millions.
        recent: tuple[dict[int, list[tuple[int, int]]], ...] = {}, {}
        times: deque[tuple[int, int, int]] = deque()
        pairs = orders = payments = due = 0
        for number, (timestamp, user, amount) in enumerate(load_.events()):
            is_payment, price = number % 2, cents(amount)
            while times and times[0][0] < timestamp - BEFORE_MS:
                _, side, gone = times.popleft()
                recent[side][gone].pop(0)
                if not recent[side][gone]:
                    del recent[side][gone]
            for other, other_price in recent[1 - is_payment].get(user, ()):
                pairs += 1
                orders += other if is_payment else number
                payments += number if is_payment else other
                due += other_price - price if is_payment else price - other_price
            recent[is_payment].setdefault(user, []).append((number, price))
            times.append((timestamp, is_payment, user))
        return pairs, orders, payments, due

    def wrong(self, answer: Sums, records: Records) -> str | None:
        """Compare the number of pairs and the sums."""
        pairs = orders = payments = due = 0
        for _, value in records:
            pair = orjson.loads(value)
            pairs += 1
            orders += pair["order"]
            payments += pair["payment"]
            due += pair["due"]
        found = pairs, orders, payments, due
        return None if found == answer else f"sums are {found}, expected {answer}"


WORKLOAD = StreamStream()
