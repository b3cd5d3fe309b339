"""Interactive queries of the state of a running application.

A query is planned by the store's codec (`state.queries`), which turns it into a read of serialized
keys and times. `state_queries` sends the read to all instances that may have partitions and
combines the results (`fan_out`): `local_threads` queries the threads that have tasks of the store,
over the control connection; `remote_instances` queries other instances over HTTP and responds to
them. `key_routing` locates partitions and keys from the assignment that the group leader announced;
`partition_counts` fetches partition counts from the cluster, so that missing partitions are
noticed. Large results are fetched page by page (`page_iterator`); `views` are the stores as users
see them, `streams_metadata` the locations. `query_client` is the entry point.
"""
