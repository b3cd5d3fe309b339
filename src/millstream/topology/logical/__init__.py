"""The logical graph: one node for each operation of the DSL.

`logical_graph` is the graph of a builder. `graph_nodes` contains most kinds of nodes, and
`table_nodes` those of tables, which are completed when the graph is complete.
"""
