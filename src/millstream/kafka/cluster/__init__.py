"""Queries of the cluster, and changes of its topics and groups, over librdkafka.

`admin` serves the stream threads, `group_admin` the tools. `committed_offsets` reads a group's
offsets from outside. `retries` repeats requests while the cluster does not respond, and
`listener_probe` detects a wrong security protocol, which neither library reports.
"""
