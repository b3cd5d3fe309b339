"""Places in the path of a commit where a process kills itself, as in a machine failure.

    python failpoints.py BOOTSTRAP NAME STATE STORES PLACE TIMES NOTE

runs a stream thread of an application with ids until it reaches a place. A place is armed by
wrapping a method for the rest of the process's life. A file records the place, and the uncommitted
records at that time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.membership.group_member import GroupMember
from millstream.record import TopicPartition
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.storage.overlay import OverlayStore
from support.running.thread_run import ThreadRun, thread_config
from support.running.topologies.identified import identified_topology

#: The method of each place, and whether the place is after the call. In the order of a commit; the
#: last two belong to a restoration.
PLACES: dict[str, tuple[type, str, bool]] = {
    "before the caches are flushed": (StreamTask, "prepare_commit", False),
    "while the caches are flushed": (RecordProducer, "send_many", True),
    "before the producer is flushed": (RecordProducer, "flush", False),
    "after the producer is flushed": (RecordProducer, "flush", True),
    "before the offsets are committed": (GroupMember, "begin_commit", False),
    "after the offsets are committed": (AtLeastOnce, "_commit", True),
    "before a store is written": (OverlayStore, "commit", False),
    "after a store is written": (OverlayStore, "commit", True),
    "before records are restored": (OverlayStore, "restore", False),
    "after records are restored": (OverlayStore, "restore", True),
}


@dataclass(frozen=True)
class Hit:
    """The record that a process writes before it kills itself.

    Args:
        uncommitted: the number of records that it had read but not committed.
    """

    place: str
    process: int
    uncommitted: int


class Failpoint:
    """Kills this process the nth time that it reaches a place. At most one process is killed.

    Args:
        note: a file that does not exist yet; once it exists, no process kills itself.
    """

    def __init__(self, place: str, times: int, note: Path) -> None:
        self._place = place
        self._left = times
        self._note = note
        self._read: dict[TopicPartition, tuple[int, int]] = {}
        self._committed: dict[TopicPartition, int] = {}

    def arm(self) -> None:
        """Activate the failpoint."""
        original_poll, original_commit = RecordConsumer.poll_columns, AtLeastOnce._commit

        def poll(consumer: RecordConsumer, *arguments: Any) -> Any:
            columns = original_poll(consumer, *arguments)
            for place, records in columns.items():
                first, _ = self._read.get(place, (records.offsets[0], 0))
                self._read[place] = first, records.offsets[-1] + 1
            return columns

        def commit(guarantee: AtLeastOnce, offsets: Any, *arguments: Any) -> None:
            # A commit without an answer may or may not succeed: it does not count as committed.
            original_commit(guarantee, offsets, *arguments)
            self._committed.update({place: each.offset for place, each in offsets.items()})

        patch.object(RecordConsumer, "poll_columns", poll).start()
        patch.object(AtLeastOnce, "_commit", commit).start()
        # Wrapped last, around the counting functions.
        owner, method, after = PLACES[self._place]
        _wrap(owner, method, self._reached, after=after)

    def _reached(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._note.exists():
            details = {
                "place": self._place,
                "process": os.getpid(),
                "uncommitted": self._uncommitted(),
            }
            part = self._note.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(details))
            # Only the first of several processes kills itself.
            with contextlib.suppress(FileExistsError):
                os.link(part, self._note)
                os.kill(os.getpid(), signal.SIGKILL)

    def _uncommitted(self) -> int:
        return sum(
            end - self._committed.get(place, first)
            for place, (first, end) in self._read.items()
            if not place.topic.endswith("-changelog")
        )


class ArmingMapper:
    """A user function that only arms a failpoint in each process that calls it."""

    def __init__(self, failpoint: Failpoint) -> None:
        self._failpoint = failpoint
        self._armed = False

    def __call__(self, value: str) -> str:
        if not self._armed:
            self._armed = True
            self._failpoint.arm()
        return value


def hit(note: Path) -> Hit:
    """Read the record of the failpoint, which must have been hit."""
    assert note.exists(), "no process reached the failpoint"
    return Hit(**json.loads(note.read_text()))


def _wrap(owner: type, method: str, reached: Callable[[], None], *, after: bool) -> None:
    original = getattr(owner, method)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        counts = _counts(owner, method, arguments)
        if counts and not after:
            reached()
        result = original(*arguments, **named)
        if counts and after:
            reached()
        return result

    patch.object(owner, method, wrapped).start()


def _counts(owner: type, method: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a place counts this call."""
    if method == "send_many":
        # With caches, stores log their changes when the caches are flushed.
        return str(arguments[1]).endswith("-changelog")
    if owner in (GroupMember, AtLeastOnce):
        # The sub-topology with stores must take part in the commit.
        return any(place.topic.endswith("-repartition") for place in arguments[1])
    # A store without changes is not written.
    return owner is not OverlayStore or arguments[1] is not None


def identified_run(bootstrap: str, name: str, state: Path, stores: Sequence[str]) -> ThreadRun:
    """The only thread of an application with ids, not started."""
    # A restarted static member takes its place in the group at once.
    consumer = {"group.instance.id": "one"}
    config = thread_config(bootstrap, state, name, commit_interval_ms=50, consumer=consumer)
    return ThreadRun(identified_topology(name, stores=stores), config)


def main() -> None:
    bootstrap, name, state, stores, place, times, note = sys.argv[1:]
    Failpoint(place, int(times), Path(note)).arm()
    identified_run(bootstrap, name, Path(state), json.loads(stores)).thread.run()


if __name__ == "__main__":
    main()
