"""The membership of a stream thread in its consumer group, over kafka-python.

Implements Kafka's classic group protocol with incremental cooperative rebalancing (KIP-429), as
used by Kafka Streams' `StreamThread`; `max.poll.interval.ms` as in KIP-62. A `group_member` joins
the group, sends heartbeats, carries the assignor's bytes and commits offsets. It owns partitions
but fetches nothing. It uses two threads of its own (one for network I/O, one for the assignor), so
that a stream thread that is busy with a batch neither misses a heartbeat nor delays a rebalance.

On the event loop, `membership` is the state machine, `coordinator` makes its requests, and
`group_offsets` commits and fetches. The leader's assignor (`member_assignor`) runs on the member's
thread (`assignor_thread`), and `topic_changes` starts a rebalance if topics change. The stream
thread observes all that as events (`member_events`).
"""
