"""Who computes what: from the members of the group to the tasks of each.

The group's leader (`leader_assignor`) turns the members' subscriptions (`subscription_info`,
`clients`) and the topics of the topology (`topics`) into tasks (`partitions`, `internal_topics`),
gives tasks to processes (`task_assignor`, which is `high_availability` or `sticky`) and to their
threads (`thread_shares`), and writes each member its assignment (`assignment_info`), which the
member reads back (`task_assignment`). The bytes are those of Kafka Streams'
`StreamsPartitionAssignor`. Nothing here talks to Kafka: the cluster is asked through the protocol
`Cluster`, which the caller implements.

Four things are called assignors, each of which asks the next: the group's protocol asks a
`MemberAssignor` (an interface in `kafka`), which for stream threads is the `ThreadAssignor` (in
`runtime`); where its member leads, that asks the `LeaderAssignor`, and this one a `TaskAssignor`.
"""

from millstream.assignment.placing.high_availability import assign_high_availability
from millstream.assignment.placing.sticky import assign_sticky
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
