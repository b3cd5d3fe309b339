"""What the user writes with.

`builder` is where a program begins, `streams_and_tables` holds the streams, tables and groups that
come of it, `global_table` the tables of which every instance has a copy. They are faces; the others
write into the logical graph what they promise:

- `stream_part`, `table_part`: the place of a stream or a table in the graph.
- `grouping`, `aggregation`, `cogrouping`, `table_aggregation`: groups and their aggregations.
- `join_options`, `join_placement`, `stream_stream_join`, `stream_table_join`, `table_table_join`,
  `foreign_key_join`: joins.
- `table_derived`, `table_suppress`, `stream_to_table`, `stream_process`: one operation each.
"""
