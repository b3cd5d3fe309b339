"""A topology whose tables are restored from their topics, and which reads streams by a pattern."""

from __future__ import annotations

import random
import re
from typing import Any, Final

from millstream import Materialized, StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from support.broker.topics import InputRecord, keyed
from support.running.topologies.features import Output

#: The topics that the application reads from the beginning: two tables, and one of the topics with
#: visits.
INPUTS: Final = {"users": 4, "towns": 4, "visits-web": 4}

OUTPUTS: Final = {
    "residents": Output(),
    "visitors": Output(compared="in order"),
    "per-town": Output(crosses=True),
    "destinations": Output(3, crosses=True, compared="in any order"),
}

_TOWNS: Final = [f"town{number}" for number in range(9)]
_USERS: Final = [f"user{number}" for number in range(30)]
#: Visits to this town lose their key when the town becomes the key.
NOWHERE: Final = "nowhere"


def topology(prefix: str) -> Topology:
    """Tables of users and towns, joined with visits; topic names begin with `prefix-`."""
    builder = StreamsBuilder(optimize=True)
    users = builder.table(f"{prefix}-users", key=STRING, value=STRING, store="users")
    towns = builder.table(f"{prefix}-towns", key=STRING, value=STRING, store="towns")
    visits = builder.stream(re.compile(f"{prefix}-visits-.*"), key=STRING, value=STRING)
    users.left_join(towns, _both).to_stream().to(f"{prefix}-residents", key=STRING, value=STRING)
    visits.left_join(users, _both).to(f"{prefix}-visitors", key=STRING, value=STRING)
    # Both go through one topic, together with the records without keys.
    by_town = visits.map(_to_town)
    (
        by_town.group_by_key(key=STRING, value=STRING, name="by-town")
        .count(store=Materialized("per-town", key=STRING, value=LONG))
        .to_stream()
        .to(f"{prefix}-per-town", key=STRING, value=LONG)
    )
    by_town.left_join(towns, _both, key=STRING, value=STRING, name="destination").to(
        f"{prefix}-destinations", key=STRING, value=STRING
    )
    return builder.build()


def towns(prefix: str, start_ms: int) -> list[InputRecord]:
    """The towns, which never change, and users whose ids are towns."""
    return [
        keyed(f"{prefix}-towns", 4, key, f"{key} in its country", start_ms + number)
        for number, key in enumerate([*_TOWNS, *_USERS[::2]])
    ]


def records(
    prefix: str, visits: list[str], seed: int, start_ms: int, span_ms: int, count: int
) -> list[InputRecord]:
    """Changes of users, and `count` visits in each of these topics, in the order of time."""
    draw = random.Random(seed)
    times = sorted(draw.sample(range(span_ms), count * (1 + len(visits))))
    names = ["users", *visits] * count
    draw.shuffle(names)
    written = []
    for time, name in zip(times, names, strict=True):
        user = draw.choice(_USERS)
        if name == "users":
            value = None if draw.random() < 0.2 else f"address {seed}.{time}"
        else:
            value = draw.choice([*_TOWNS, NOWHERE])
        written.append(keyed(f"{prefix}-{name}", 4, user, value, start_ms + time))
    return written


def visits(prefix: str, name: str, seed: int, start_ms: int, count: int) -> list[InputRecord]:
    """Visits in one topic."""
    changes_too = records(prefix, [name], seed, start_ms, 100 * count, count)
    return [record for record in changes_too if record.topic == f"{prefix}-{name}"]


def _to_town(user: str, town: str) -> tuple[Any, str]:
    return None if town == NOWHERE else town, user


def _both(one: str | None, other: str | None) -> str:
    return f"{one} & {other}"
