"""Sums of sessions."""

from __future__ import annotations

import struct
from collections import deque
from datetime import timedelta

from arguments import Arguments
from computations import cents
from harness.check import Numbers
from harness.load import Load, user_key
from progress import CountingSerde, Progress
from workload import Records, Workload

from millstream import Materialized, SessionWindows, StreamsBuilder, Topology
from millstream.serdes import JSON, LONG, STRING

GAP_MS = 5_000


class SessionSums(Workload[Numbers]):
    """Sums an amount by key and session, without a grace period. A session ends after 5 seconds
    without a record. A user has a record every 10 seconds on average, so a session consists of
    about two records."""

    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        builder = StreamsBuilder()
        (
            builder.stream(arguments.input_topic, key=STRING, value=CountingSerde(JSON, progress))
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

    def answer(self, load_: Load) -> Numbers:
        """Return the sum of each session, by the bytes of its key: user, end, start."""
        #: Start, end and sum of open sessions only, because there may be millions of users.
        sessions: dict[int, tuple[int, int, int]] = {}
        recent: deque[tuple[int, int]] = deque()
        sums = Numbers()
        pack = struct.Struct(">qq").pack
        for timestamp, user, amount in load_.events():
            while recent and timestamp - recent[0][0] > GAP_MS:
                last, other = recent.popleft()
                start, end, total = sessions[other]
                if end == last:
                    sums.add(user_key(other) + pack(end, start), total)
                    del sessions[other]
            start, _, total = sessions.get(user, (timestamp, timestamp, 0))
            sessions[user] = start, timestamp, total + cents(amount)
            recent.append((timestamp, user))
        for user, (start, end, total) in sessions.items():
            sums.add(user_key(user) + pack(end, start), total)
        return sums

    def wrong(self, answer: Numbers, records: Records) -> str | None:
        """Compare the sums of the sessions that were not merged into others."""
        return answer.wrong(records, "sessions")


WORKLOAD = SessionSums()
