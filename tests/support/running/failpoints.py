"""Places in the path of a commit where a process kills itself, as if the machine had failed there.

A place is armed by wrapping a method for the rest of the process's life; which one is hit, and what
was not committed by then, is noted in a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.member.group_member import GroupMember
from millstream.record import TopicPartition
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.storage.overlay import OverlayStore

#: The method that each place is about, and whether the place comes after it. In the order of a
#: commit; the last two are of a restoration.
PLACES: dict[str, tuple[type, str, bool]] = {
    "before the caches are flushed": (StreamTask, "prepare_commit", False),
    "while the caches are flushed": (RecordProducer, "send_many", True),
    "before the producer is flushed": (RecordProducer, "flush", False),
    "after the producer is flushed": (RecordProducer, "flush", True),
    "before the offsets are committed": (GroupMember, "begin_commit", False),
    "after the offsets are committed": (AtLeastOnce, "commit", True),
    "before a store is written": (OverlayStore, "commit", False),
    "after a store is written": (OverlayStore, "commit", True),
    "before records are restored": (OverlayStore, "restore", False),
    "after records are restored": (OverlayStore, "restore", True),
}


@dataclass(frozen=True)
class Hit:
    """What a process noted when it killed itself.

    Args:
        place: where it was.
        process: its id.
        uncommitted: how many records it had read, but not committed.
    """

    place: str
    process: int
    uncommitted: int


class Failpoint:
    """Kills this process when it comes to a place for the nth time, once in all.

    Args:
        place: one of `PLACES`.
        times: which time it is.
        note: a file that does not exist yet; with it, nobody kills itself any more.
    """

    def __init__(self, place: str, times: int, note: Path) -> None:
        self._place = place
        self._left = times
        self._note = note
        self._read: dict[TopicPartition, tuple[int, int]] = {}
        self._committed: dict[TopicPartition, int] = {}

    def arm(self) -> None:
        """From now on."""
        real_poll, real_commit = RecordConsumer.poll_columns, AtLeastOnce.commit

        def poll(consumer: RecordConsumer, *arguments: Any) -> Any:
            columns = real_poll(consumer, *arguments)
            for place, records in columns.items():
                first, _ = self._read.get(place, (records.offsets[0], 0))
                self._read[place] = first, records.offsets[-1] + 1
            return columns

        def commit(guarantee: AtLeastOnce, offsets: Any, *arguments: Any) -> None:
            # Until the group has answered, nobody knows whether it has taken them.
            real_commit(guarantee, offsets, *arguments)
            self._committed.update({place: each.offset for place, each in offsets.items()})

        patch.object(RecordConsumer, "poll_columns", poll).start()
        patch.object(AtLeastOnce, "commit", commit).start()
        # Last, around what is counted above.
        owner, method, after = PLACES[self._place]
        _wrap(owner, method, self._reached, after=after)

    def _reached(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._note.exists():
            told = {
                "place": self._place,
                "process": os.getpid(),
                "uncommitted": self._uncommitted(),
            }
            part = self._note.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(told))
            # Of several processes one may.
            with contextlib.suppress(FileExistsError):
                os.link(part, self._note)
                os.kill(os.getpid(), signal.SIGKILL)

    def _uncommitted(self) -> int:
        return sum(
            end - self._committed.get(place, first)
            for place, (first, end) in self._read.items()
            if not place.topic.endswith("-changelog")
        )


class Armed:
    """A function of the user's that does nothing but arm a failpoint in each process that calls it.

    Args:
        failpoint: not armed yet.
    """

    def __init__(self, failpoint: Failpoint) -> None:
        self._failpoint = failpoint
        self._armed = False

    def __call__(self, value: str) -> str:
        if not self._armed:
            self._armed = True
            self._failpoint.arm()
        return value


def hit(note: Path) -> Hit:
    """What was noted. The failpoint must have been hit."""
    assert note.exists(), "no process came to the failpoint"
    return Hit(**json.loads(note.read_text()))


def _wrap(owner: type, method: str, reached: Callable[[], None], *, after: bool) -> None:
    real = getattr(owner, method)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        counts = _counts(owner, method, arguments)
        if counts and not after:
            reached()
        result = real(*arguments, **named)
        if counts and after:
            reached()
        return result

    patch.object(owner, method, wrapped).start()


def _counts(owner: type, method: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a call is one of those that a place is about."""
    if method == "send_many":
        # With caches, stores log their changes when these are flushed.
        return str(arguments[1]).endswith("-changelog")
    if owner in (GroupMember, AtLeastOnce):
        # The sub-topology that has stores must have a part in it.
        return any(place.topic.endswith("-repartition") for place in arguments[1])
    # A store that has not changed is not written.
    return owner is not OverlayStore or arguments[1] is not None
