"""Sums of tumbling windows."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import ClassVar

from arguments import Arguments
from computations import WINDOW_MS, cents
from harness.check import Numbers
from harness.load import Load, user_key
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import Materialized, StreamsBuilder, TimeWindows, Topology
from millstream.serdes import JSON, LONG, STRING


class TumblingSums(Workload[Numbers]):
    """Sums an amount by key and minute (tumbling windows without a grace period) in a cached,
    changelogged store, and writes new sums to a topic."""

    #: The time from the start of a window to the start of the next one.
    advance_ms: ClassVar[int] = WINDOW_MS

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        windows = TimeWindows(
            timedelta(milliseconds=WINDOW_MS), advance=timedelta(milliseconds=self.advance_ms)
        )
        (
            builder.stream(arguments.input_topic, key=STRING, value=CountingSerde(JSON, progress))
            .group_by_key(key=STRING, value=JSON)
            .windowed_by(windows)
            .aggregate(
                lambda: 0,
                lambda _, event, total: total + cents(event["amount"]),
                store=Materialized("sums", key=STRING, value=LONG),
            )
            .to_stream()
            .to(arguments.output_topic, value=LONG)
        )
        return builder.build()

    def answer(self, load_: Load) -> Numbers:
        """Return the sum of each window, by the bytes of its key: user, start."""
        sums = Numbers()
        pack = struct.Struct(">q").pack
        for timestamp, user, amount in load_.events():
            key, price = user_key(user), cents(amount)
            last = timestamp - timestamp % self.advance_ms
            for start in range(last, timestamp - WINDOW_MS, -self.advance_ms):
                sums.add(key + pack(start), price)
        return sums

    def wrong(self, answer: Numbers, records: Records) -> str | None:
        """Compare the latest sum of each window."""
        return answer.wrong(records, "windows")


WORKLOAD = TumblingSums()
