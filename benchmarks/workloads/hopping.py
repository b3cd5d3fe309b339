"""Sums of windows that overlap."""

from __future__ import annotations

import struct
from collections import defaultdict
from datetime import timedelta

from arguments import Arguments
from check import wrong_longs
from load import Load, user_key
from progress import Counting, Progress
from rules import WINDOW_MS, cents
from workload import Records, Workload

from millstream import Materialized, StreamsBuilder, TimeWindows, Topology
from millstream.serdes import JSON, LONG, STRING

ADVANCE_MS = 20_000


class HoppingSums(Workload[dict[bytes, int]]):
    """Sums an amount by key in windows of a minute that begin each 20 seconds, so each record is in
    three; no grace."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """A windowed aggregate."""
        builder = StreamsBuilder()
        windows = TimeWindows(
            timedelta(milliseconds=WINDOW_MS), advance=timedelta(milliseconds=ADVANCE_MS)
        )
        (
            builder.stream(arguments.input_topic, key=STRING, value=Counting(JSON, progress))
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

    def answer(self, load_: Load) -> dict[bytes, int]:
        """The sum of each window, by the bytes of its key: those of the user, then the start."""
        sums: defaultdict[bytes, int] = defaultdict(int)
        pack = struct.Struct(">q").pack
        for timestamp, user, amount in load_.events():
            key, price = user_key(user), cents(amount)
            last = timestamp - timestamp % ADVANCE_MS
            for start in range(last, timestamp - WINDOW_MS, -ADVANCE_MS):
                sums[key + pack(start)] += price
        return dict(sums)

    def wrong(self, answer: dict[bytes, int], records: Records) -> str | None:
        """Compares the last sum of each window."""
        return wrong_longs(answer, records, "windows")


WORKLOAD = HoppingSums()
