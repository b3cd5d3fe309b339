"""Interactive queries of the state of a running application.

The store's codec (`state.queries`) plans a query: it converts the query to a read of serialized
keys and times. `state_queries` sends the read to all instances that may have partitions of the
store, and combines the results (`fan_out`). `local_threads` queries the threads that have tasks of
the store, over the control connection. `remote_instances` queries other instances over HTTP, and
responds to their queries.

`key_routing` locates partitions and keys, based on the assignment that the group leader has
announced. `partition_counts` fetches partition counts from the cluster, so that missing partitions
are detected. `page_iterator` fetches large results page by page. `views` and `streams_metadata`
contain the public classes for stores and locations. `query_client` is the entry point.
"""
