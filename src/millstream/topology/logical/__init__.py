"""The logical graph: one node for each operation of the DSL.

`logical_graph` contains the graph of a builder, `graph_nodes` most kinds of nodes, and
`table_nodes` the nodes of tables, whose operations are completed when the graph is complete.
"""
