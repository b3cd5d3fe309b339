"""Options of windows, joins, stores, triggers and lake tables.

`windows` defines the windows of aggregations and joins, `materialized` the stores of tables,
`suppressed` the buffers of `KTable.suppress`, and `trigger` and `lake` the options of DataFrame
stages and lake tables.
"""
