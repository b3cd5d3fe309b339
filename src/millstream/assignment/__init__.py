"""Task assignment: computes the tasks of each member of the group.

The group's leader (`leader_assignor`) combines the members' subscriptions (`wire_format`,
`client_members`) and the topics of the topology (`topic_metadata`) into tasks and internal topics
(`internal_topics`), assigns the tasks to processes (`task_assignor`) and to their threads, and
encodes each member's assignment, which the member decodes (`task_assignment`) and compares with its
own topology (`other_topologies`). The wire format is that of Kafka Streams'
`StreamsPartitionAssignor`. This package does not connect to Kafka: the caller implements the
protocol `Cluster`.

The task assignors are `placement/high_availability`, which keeps a stateful task where it is until
the state has nearly been restored elsewhere, and `placement/sticky`. No assignor scans all
processes for each task: lags are only stored for processes that reported a position
(`placement/task_lags`), and the least loaded process is on top of a heap (`placement/client_load`).
`racks` then exchanges tasks between processes by a minimum-cost flow, or between racks if that
search would take too long.

There are four assignors, each of which calls the next: the group protocol calls a `MemberAssignor`
(an interface in `kafka`), which is the `ThreadAssignor` (in `runtime`) for stream threads; if its
member is the leader, it calls the `LeaderAssignor`, which calls a `TaskAssignor`.
"""

from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.placement.sticky import assign_sticky
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    ProcessState,
    TaskAssignor,
    TaskInfo,
)

__all__ = [
    "ApplicationState",
    "AssignmentConfig",
    "ProcessAssignment",
    "ProcessState",
    "TaskAssignor",
    "TaskInfo",
    "assign_high_availability",
    "assign_sticky",
]
