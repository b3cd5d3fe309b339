"""The membership of a stream thread in its consumer group, based on kafka-python.

Implements Kafka's classic group protocol with incremental cooperative rebalancing (KIP-429), as
used by Kafka Streams' `StreamThread`; `max.poll.interval.ms` as in KIP-62. A `group_member` joins
the group, sends heartbeats, transmits the assignor's bytes and commits offsets. It owns partitions
but fetches no records. It uses two threads (one for network I/O, one for the assignor), so a stream
thread that is busy with a batch neither misses a heartbeat nor delays a rebalance.

On the event loop, `membership` is the state machine, `coordinator` sends its requests, and
`group_offsets` commits and fetches offsets. The leader's assignor (`member_assignor`) runs on the
member's second thread (`assignor_thread`), and `topic_changes` starts a rebalance if topics change.
The stream thread receives all of this as events (`member_events`).
"""
