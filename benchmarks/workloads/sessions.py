"""Sums of sessions."""

from __future__ import annotations

import struct
from datetime import timedelta

from arguments import Arguments
from check import wrong_longs
from load import Load, user_key
from progress import Counting, Progress
from rules import cents
from workload import Records, Workload

from millstream import Materialized, SessionWindows, StreamsBuilder, Topology
from millstream.serdes import JSON, LONG, STRING

GAP_MS = 5_000


class SessionSums(Workload[dict[bytes, int]]):
    """Sums an amount by key and session, which 5 seconds without a record end; no grace. A user
    has a record each 10 seconds on average, so about two records make a session."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """An aggregate of sessions."""
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=Counting(JSON, progress))
            .group_by_key(key=STRING, value=JSON)
            .windowed_by(SessionWindows(timedelta(milliseconds=GAP_MS)))
            .aggregate(
                lambda: 0,
                lambda _, event, total: total + cents(event["amount"]),
                lambda _, one, other: one + other,
                store=Materialized("sums", key=STRING, value=LONG),
            )
            .to_stream()
            .to(arguments.output_topic, value=LONG)
        )
        return builder.build()

    def answer(self, load_: Load) -> dict[bytes, int]:
        """The sum of each session, by the bytes of its key: of the user, the end, the start."""
        sessions: dict[int, tuple[int, int, int]] = {}
        sums: dict[bytes, int] = {}
        pack = struct.Struct(">qq").pack
        for timestamp, user, amount in load_.events():
            start, end, total = sessions.get(user, (timestamp, timestamp, 0))
            if timestamp - end > GAP_MS:
                sums[user_key(user) + pack(end, start)] = total
                start, total = timestamp, 0
            sessions[user] = start, timestamp, total + cents(amount)
        for user, (start, end, total) in sessions.items():
            sums[user_key(user) + pack(end, start)] = total
        return sums

    def wrong(self, answer: dict[bytes, int], records: Records) -> str | None:
        """Compares the sums of the sessions that were not merged into others."""
        return wrong_longs(answer, records, "sessions")


WORKLOAD = SessionSums()
