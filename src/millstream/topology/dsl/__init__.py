"""The public DSL.

`builder` contains `StreamsBuilder`, `streams_and_tables` the streams, tables and groups, and
`global_table` the global tables. The other modules add operations to the logical graph:

- `stream_part`, `table_access`: the position of a stream or a table in the graph.
- `aggregation`, `table_aggregation`: groups and aggregations.
- `stream_joins`, `stream_stream_join`, `stream_table_join`, `table_table_join`,
  `foreign_key_join`: joins.
- `table_derived`, `table_suppress`, `stream_process`, `stream_dataframe`: one kind of operation
  each.

`migration_hints` adds hints to the errors for methods of other libraries.
"""
