"""A group member's life as a program, for another kafka-python than this process's.

    python -m support.broker.member_round BOOTSTRAP TOPIC

Two members share a topic of four partitions: they join, commit, read the committed offsets, hand
partitions over and leave. Finally one line of JSON contains the version of kafka-python.
"""

from __future__ import annotations

import json
import sys

import kafka

from millstream.kafka.kafka_python_compat import check_kafka_python
from millstream.kafka.membership.member_events import Assigned, CommitOffset
from millstream.record import TopicPartition
from support.broker.group_members import Assignor, Loop
from support.waiting import wait_for


def main(bootstrap: str, topic: str) -> None:
    """Run all steps; an assertion fails at an unexpected result."""
    check_kafka_python()
    group = f"round-{topic}"
    every = {TopicPartition(topic, number) for number in range(4)}
    first, second = (
        Loop(bootstrap, group, [topic], Assignor({topic: 4}), name=name, session_timeout_ms=20_000)
        for name in ("first", "second")
    )
    first.start()
    assert first.await_owned(4) == every
    first.member.commit({tp: CommitOffset(7) for tp in every}, 10_000)
    second.start()
    handed_over = second.await_owned(2)
    assert first.await_owned(2) == every - handed_over
    # Revoked partitions are committed during the rebalance, under the old generation.
    committed = second.member.committed(every, 10_000)
    assert {tp: found and found.offset for tp, found in committed.items()} == {
        tp: 100 + tp.partition if tp in handed_over else 7 for tp in every
    }
    rounds = len(second.of(Assigned))
    second.member.request_rejoin("to see that it can")
    wait_for(lambda: len(second.of(Assigned)) > rounds)
    second.close()
    assert first.await_owned(4) == every
    first.close()
    sys.stdout.write(json.dumps({"version": kafka.__version__, "file": kafka.__file__}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
