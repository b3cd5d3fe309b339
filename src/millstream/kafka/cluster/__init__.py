"""Queries of the cluster, and changes to its topics and groups.

Based on librdkafka. Stream threads use `admin`, tools use `group_admin`. `committed_offsets` reads
a group's offsets from outside the group. `retries` repeats requests while the cluster does not
respond, and `listener_probe` detects a wrong security protocol, which neither library reports.
"""
