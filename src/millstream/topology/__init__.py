"""Topologies: the DSL, and the nodes, stores and topics that are built from it.

The names, numbers and order of nodes are the same as in Kafka Streams, so that the topics and
stores of a Java application can be reused. Each subpackage depends only on those listed before it:

- `options`: the options of windows, joins, stores, triggers and lake tables.
- `operations`: descriptions of the operations of processor nodes, as data.
- `physical`: source, processor and sink nodes, the `Topology` and its sub-topologies.
- `logical`: the graph of DSL operations, from which a `Topology` is created.
- `passes`: the passes over the graph, and `build`, which runs them and creates the topology.
- `dsl`: the public DSL: `StreamsBuilder`, streams, tables and groups.

Each call on a stream or table adds a node to the logical graph. If keys may have changed before an
operation by key, a repartition topic is inserted. `StreamsBuilder.build` merges sources that read
the same topics, applies the optimizations, and creates the physical nodes of each logical node.
Physical nodes that are connected, or that share a store, form a sub-topology, which becomes one
task per partition.

`logical_plan` defines the immutable description of the program that a built topology contains.
`argument_checks`, `async_argument_checks`, `naming` and `call_site` are shared by the subpackages:
errors name the file and line of the declaration in the user's program.
"""
