"""Do group members whose processing loops hog the interpreter settle, and stay settled?

Two processes join one group. Their processing loops hold Python's interpreter lock for more than a
second at a time and let go of it for some milliseconds only, which is what a big batch in C code
does. The group must settle within three generations and must not rebalance again: each further
generation would be a rebalance without a cause.

    PYTHONPATH=tests python -m chaos.member_settles --seconds 600

waits until they have settled, watches them for so long, prints what happened and ends with 1 if it
was not so. With --worker it is one of the members, which prints its events as lines of JSON; other
tests use it for members that they kill.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.machine.scripts import Program
from support.waiting import stays, wait_for

from millstream.clock import SystemClock
from millstream.kafka.member.group_member import (
    Assigned,
    CommitOffset,
    Failed,
    GroupMember,
    Lost,
    MemberAssignment,
    MemberSubscription,
    Revoked,
)
from millstream.record import TopicPartition

TESTS = Path(__file__).parents[1]
PARTITIONS = 8
#: Two members: one alone, the second joins, what the first gave up is handed on.
MOST_GENERATIONS = 3
SETTLING_S = 120


class SpreadEvenly:
    """An assignor that deals partitions out in turn and takes none away from an owner at once."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._all = [TopicPartition(topic, number) for number in range(partitions)]
        self._joins = 0

    def user_data(self) -> bytes:
        self._joins += 1
        return self._joins.to_bytes(4, "big")

    def assign(self, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        owner = {tp: member for member, s in members.items() for tp in s.owned_partitions}
        dealt: dict[str, list[TopicPartition]] = {member: [] for member in members}
        # By who has been there longest, so that a newcomer changes as little as possible.
        turns = sorted(members, key=lambda m: (-len(members[m].owned_partitions), m))
        for number, partition in enumerate(self._all):
            member = turns[number % len(turns)]
            if owner.get(partition, member) == member:
                dealt[member].append(partition)
        return {m: MemberAssignment(tuple(tps), b"for " + m.encode()) for m, tps in dealt.items()}


def hold_the_interpreter(seconds: float) -> None:
    """Keep all other threads of this process from running for a stretch of about `seconds`.

    One call that never lets go of the lock; how long a number takes is measured beforehand.
    """
    probe = 500_000
    started = time.monotonic()
    sum(range(probe))
    sum(range(int(probe * seconds / (time.monotonic() - started))))


def work(arguments: argparse.Namespace) -> None:
    """Be a member until SIGTERM."""
    told_to_end: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: told_to_end.append(number))
    member = GroupMember(
        {
            "bootstrap_servers": arguments.bootstrap,
            "session_timeout_ms": arguments.session_timeout_ms,
            "heartbeat_interval_ms": arguments.session_timeout_ms // 6,
        },
        group_id=arguments.group,
        topics=[arguments.topic],
        pattern=None,
        assignor=SpreadEvenly(arguments.topic, PARTITIONS),
        client_id=arguments.client_id,
        clock=SystemClock(),
    )
    member.start()
    owned: frozenset[TopicPartition] = frozenset()
    position = 0
    while not told_to_end:
        member.progress()
        event = member.next_event(0 if arguments.hog_s else 50)
        if event is not None:
            owned = _handle(member, event, owned, position)
            continue
        if arguments.hog_s:
            hold_the_interpreter(arguments.hog_s)
            time.sleep(0.005)
            position += 1
            with contextlib.suppress(Exception):
                # A commit is refused while the group rebalances; the next round commits.
                member.commit({tp: CommitOffset(position) for tp in owned}, timeout_ms=10_000)
    member.close(leave_group=True, timeout_ms=10_000)


def _handle(
    member: GroupMember, event: object, owned: frozenset[TopicPartition], position: int
) -> frozenset[TopicPartition]:
    match event:
        case Revoked():
            member.commit({tp: CommitOffset(position) for tp in event.partitions}, 10_000)
            member.acknowledge(event)
            owned -= event.partitions
            _tell("revoked", partitions=len(event.partitions))
        case Lost():
            member.acknowledge(event)
            owned -= event.partitions
            _tell("lost", partitions=len(event.partitions))
        case Assigned():
            owned = event.partitions
            _tell("assigned", generation=event.generation, partitions=len(owned))
        case Failed():
            _tell("failed", error=str(event.error))
            raise SystemExit(2)
    return owned


def _tell(event: str, **fields: Any) -> None:
    line = {"event": event, "at": round(time.monotonic(), 3), **fields}
    print(json.dumps(line), flush=True)  # noqa: T201


class Worker(Program):
    """A member in a process of its own, and what it has told so far."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        client_id: str,
        hog_s: float = 0,
        session_timeout_ms: int = 30_000,
    ) -> None:
        super().__init__(
            *(sys.executable, "-m", "chaos.member_settles", "--worker"),
            *("--bootstrap", bootstrap, "--group", group, "--topic", topic),
            *("--client-id", client_id, "--hog-s", str(hog_s)),
            *("--session-timeout-ms", str(session_timeout_ms)),
            environment={"PYTHONPATH": str(TESTS)},
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened to it, in order."""
        return [json.loads(line) for line in self.lines]

    def owned(self) -> int:
        """How many partitions it was given last."""
        assigned = [event for event in self.events if event["event"] == "assigned"]
        return int(assigned[-1]["partitions"]) if assigned else 0

    def leave(self, patience_s: float) -> None:
        """Let it leave; whoever has started it ends it if it does not."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait_ended(patience_s)


def run(bootstrap: str, topic: str, seconds: float, hog_s: float = 1.2) -> list[str]:
    """Two hogging members, until they have settled and for `seconds` more.

    Returns:
        What was wrong, as sentences.
    """
    group = f"settles-{time.time_ns()}"
    with contextlib.ExitStack() as running:
        workers: list[Worker] = []
        # The second one finds a group that is at work.
        for share in (PARTITIONS, PARTITIONS // 2):
            name = f"hog-{len(workers)}"
            worker = running.enter_context(
                Worker(bootstrap, group, topic, client_id=name, hog_s=hog_s)
            )
            running.callback(worker.leave, 15)
            workers.append(worker)
            if not _settled(workers, share):
                return [f"{name} had not settled after {SETTLING_S} s", *_story(workers)]
        stays(lambda: all(worker.is_running for worker in workers), seconds)
        return _verdict(workers)


def _settled(workers: list[Worker], share: int) -> bool:
    try:
        wait_for(
            lambda: (
                all(worker.owned() == share for worker in workers)
                or not all(worker.is_running for worker in workers)
            ),
            SETTLING_S,
        )
    except AssertionError:
        return False
    return all(worker.is_running for worker in workers)


def _verdict(workers: list[Worker]) -> list[str]:
    wrong = [
        f"{event}"
        for worker in workers
        for event in worker.events
        if event["event"] in ("lost", "failed")
    ]
    if not all(worker.is_running for worker in workers):
        wrong.append("a member's process ended")
    generations = max(e.get("generation", 0) for worker in workers for e in worker.events)
    if generations > MOST_GENERATIONS:
        wrong.append(f"{generations} generations instead of at most {MOST_GENERATIONS}")
    if any(worker.owned() != PARTITIONS // 2 for worker in workers):
        wrong.append("the partitions did not stay where they were")
    return [*wrong, *_story(workers)] if wrong else []


def _story(workers: list[Worker]) -> list[str]:
    events = [{"member": i, **e} for i, worker in enumerate(workers) for e in worker.events]
    return [json.dumps(event) for event in sorted(events, key=lambda event: float(event["at"]))]


@contextlib.contextmanager
def _broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    from millstream.testing import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        kafka.create_topic("settles", partitions=PARTITIONS)
        yield kafka.bootstrap_servers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--bootstrap")
    parser.add_argument("--topic", default="settles")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--group")
    parser.add_argument("--client-id")
    parser.add_argument("--hog-s", type=float, default=1.2)
    parser.add_argument("--session-timeout-ms", type=int, default=30_000)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return 0
    with _broker(arguments.bootstrap) as bootstrap:
        wrong = run(bootstrap, arguments.topic, arguments.seconds, arguments.hog_s)
    print("\n".join(wrong) or "settled, and stayed so")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
