"""Where a partition is to be read from after a reset."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from millstream.errors import ConfigError
from millstream.record import TopicPartition


@dataclass(frozen=True)
class Target:
    """One way to say it.

    Args:
        kind: earliest, latest, a fixed offset, a shift from what is committed, a time, or the lines
            of a file.
        number: the offset, the shift, or the time in milliseconds since the epoch.
        plan: the offsets of a file.
    """

    kind: Literal["earliest", "latest", "offset", "shift", "time", "file"]
    number: int = 0
    plan: Mapping[TopicPartition, int] | None = None


EARLIEST = Target("earliest")
LATEST = Target("latest")


def target_offset(
    target: Target,
    place: TopicPartition,
    begin: int,
    end: int,
    committed: int | None,
    at_time: int | None,
) -> int:
    """The offset that a partition gets, always within what the topic has.

    Args:
        target: what was asked for.
        place: the partition.
        begin: the offset of its first record.
        end: the offset after its last record.
        committed: what the group has committed; without it a shift is one from the end, as Kafka's
            tool has it.
        at_time: the first offset no older than the time asked for; None if there is none.
    """
    match target.kind:
        case "earliest":
            return begin
        case "latest":
            return end
        case "time":
            # Follows Kafka's tool: where nothing is as new, the end.
            return end if at_time is None else at_time
        case "offset":
            wanted = target.number
        case "shift":
            wanted = (end if committed is None else committed) + target.number
        case "file":
            assert target.plan is not None
            wanted = target.plan[place]
    return min(max(wanted, begin), end)


def check_complete(target: Target, places: Collection[TopicPartition]) -> None:
    """Refuse a file that leaves partitions out.

    Raises:
        ConfigError: it does.
    """
    missing = sorted(set(places) - (target.plan or {}).keys()) if target.kind == "file" else []
    if missing:
        named = ", ".join(f"{place.topic},{place.partition}" for place in missing[:5])
        raise ConfigError(
            f"The file of offsets has no line for {len(missing)} partitions of the input topics: "
            f"{named}{', …' if len(missing) > 5 else ''}. Add TOPIC,PARTITION,OFFSET for each."
        )


def read_plan(file: Path) -> dict[TopicPartition, int]:
    """The offsets of a file with a line TOPIC,PARTITION,OFFSET for each partition.

    Raises:
        ConfigError: it cannot be read, is empty, or has another line.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    plan: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise ConfigError(f"{file}, line {number}: {line!r} is not TOPIC,PARTITION,OFFSET.")
        plan[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    if not plan:
        raise ConfigError(f"{file} is empty: write a line TOPIC,PARTITION,OFFSET per partition.")
    return plan
