"""Verifies that group members with long-running processing loops settle and stay settled.

Two processes join one group. Their processing loops hold the interpreter lock for more than a
second at a time and release it for a few milliseconds only, like a large batch in C code. The group
must settle within three generations and must not rebalance again, since there is no reason to.

    PYTHONPATH=tests python -m chaos.member_settles --seconds 600

waits until the members have settled, watches them for this time, prints the result and exits with 1
if they did not stay settled. With --worker, the program is one of the members, which prints its
events as lines of JSON; other tests use it for members that they kill.
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
from millstream.kafka.membership.group_member import GroupMember
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.kafka.membership.member_events import Assigned, CommitOffset, Failed, Lost, Revoked
from millstream.record import TopicPartition

TESTS = Path(__file__).parents[1]
PARTITIONS = 8
#: The first member joins, the second joins, the revoked partitions are assigned.
MAX_GENERATIONS = 3
SETTLING_S = 120


class RoundRobinAssignor:
    """A cooperative assignor that assigns partitions round-robin."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._all = [TopicPartition(topic, number) for number in range(partitions)]
        self._joins = 0

    def user_data(self) -> bytes:
        self._joins += 1
        return self._joins.to_bytes(4, "big")

    def assign(self, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        owner = {tp: member for member, s in members.items() for tp in s.owned_partitions}
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        # Longest members first, so that a new one changes as little as possible.
        turns = sorted(members, key=lambda m: (-len(members[m].owned_partitions), m))
        for number, partition in enumerate(self._all):
            member = turns[number % len(turns)]
            if owner.get(partition, member) == member:
                assigned[member].append(partition)
        return {
            m: MemberAssignment(tuple(tps), b"for " + m.encode()) for m, tps in assigned.items()
        }


def block_interpreter(seconds: float) -> None:
    """Block all other threads of this process for about `seconds`.

    Makes one call that does not release the interpreter lock; its size is measured beforehand.
    """
    probe = 500_000
    started = time.monotonic()
    sum(range(probe))
    sum(range(int(probe * seconds / (time.monotonic() - started))))


def work(arguments: argparse.Namespace) -> None:
    """Run a member until SIGTERM."""
    stop_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop_signals.append(number))
    member = GroupMember(
        {
            "bootstrap_servers": arguments.bootstrap,
            "session_timeout_ms": arguments.session_timeout_ms,
            "heartbeat_interval_ms": min(arguments.session_timeout_ms // 6, 5_000),
        },
        group_id=arguments.group,
        topics=[arguments.topic],
        pattern=None,
        assignor=RoundRobinAssignor(arguments.topic, PARTITIONS),
        client_id=arguments.client_id,
        clock=SystemClock(),
    )
    member.start()
    owned: frozenset[TopicPartition] = frozenset()
    position = 0
    while not stop_signals:
        member.progress()
        event = member.next_event(0 if arguments.block_s else 50)
        if event is not None:
            owned = _handle(member, event, owned, position)
            continue
        if arguments.block_s:
            block_interpreter(arguments.block_s)
            time.sleep(0.005)
            position += 1
            with contextlib.suppress(Exception):
                # Commits fail while the group rebalances; the next round commits.
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
            _print_event("revoked", partitions=len(event.partitions))
        case Lost():
            member.acknowledge(event)
            owned -= event.partitions
            _print_event("lost", partitions=len(event.partitions))
        case Assigned():
            owned = event.partitions
            _print_event("assigned", generation=event.generation, partitions=len(owned))
        case Failed():
            _print_event("failed", error=str(event.error))
            raise SystemExit(2)
    return owned


def _print_event(event: str, **fields: Any) -> None:
    line = {"event": event, "at": round(time.monotonic(), 3), **fields}
    print(json.dumps(line), flush=True)  # noqa: T201


class Worker(Program):
    """A member in a process of its own, and its events so far."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        client_id: str,
        block_s: float = 0,
        session_timeout_ms: int = 30_000,
    ) -> None:
        super().__init__(
            *(sys.executable, "-m", "chaos.member_settles", "--worker"),
            *("--bootstrap", bootstrap, "--group", group, "--topic", topic),
            *("--client-id", client_id, "--block-s", str(block_s)),
            *("--session-timeout-ms", str(session_timeout_ms)),
            environment={"PYTHONPATH": str(TESTS)},
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """The member's events, in order."""
        return [json.loads(line) for line in self.lines]

    def owned(self) -> int:
        """The number of partitions in its last assignment."""
        assigned = [event for event in self.events if event["event"] == "assigned"]
        return int(assigned[-1]["partitions"]) if assigned else 0

    def leave(self, timeout_s: float) -> None:
        """Let the member leave the group. If it does not end in time, the caller must end it."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait_ended(timeout_s)


def run(bootstrap: str, topic: str, seconds: float, block_s: float = 1.2) -> list[str]:
    """Run two blocking members until they have settled, and for `seconds` more.

    Returns:
        The problems.
    """
    group = f"settles-{time.time_ns()}"
    with contextlib.ExitStack() as running:
        workers: list[Worker] = []
        # The second member joins a group that is already processing.
        for share in (PARTITIONS, PARTITIONS // 2):
            name = f"blocking-{len(workers)}"
            worker = running.enter_context(
                Worker(bootstrap, group, topic, client_id=name, block_s=block_s)
            )
            running.callback(worker.leave, 15)
            workers.append(worker)
            if not _settled(workers, share):
                return [f"{name} had not settled after {SETTLING_S} s", *_events(workers)]
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
    if generations > MAX_GENERATIONS:
        wrong.append(f"{generations} generations instead of at most {MAX_GENERATIONS}")
    if any(worker.owned() != PARTITIONS // 2 for worker in workers):
        wrong.append("the assignment changed")
    return [*wrong, *_events(workers)] if wrong else []


def _events(workers: list[Worker]) -> list[str]:
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
    parser.add_argument("--block-s", type=float, default=1.2)
    parser.add_argument("--session-timeout-ms", type=int, default=30_000)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return 0
    with _broker(arguments.bootstrap) as bootstrap:
        wrong = run(bootstrap, arguments.topic, arguments.seconds, arguments.block_s)
    print("\n".join(wrong) or "settled and stayed settled")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
