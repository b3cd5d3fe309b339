"""The logical graph: one node per word of the DSL.

`graph` is the graph of a builder, `graph_nodes` the kinds of its nodes; `table_nodes`,
`stream_join_node` and `repartition` are those that take more to write.
"""
