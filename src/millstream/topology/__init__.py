"""Topologies: the DSL, and the nodes, stores and topics that are built from it.

Names, numbers and order are those of Kafka Streams, so that the topics and stores of a Java
application can be reused. The packages, each of which depends only on the preceding ones:

- `options`: the options of windows, joins, stores, triggers and lake tables.
- `operations`: descriptions of the operations of processor nodes, as data.
- `physical`: source, processor and sink nodes, the `Topology` and its sub-topologies.
- `logical`: the graph of DSL operations, from which a `Topology` is created.
- `passes`: the passes over the graph, and `build`, which runs them and creates the topology.
- `dsl`: the public DSL: `StreamsBuilder`, streams, tables and groups.

Each call on a stream or table adds a node to the logical graph. If keys may have changed before an
operation by key, a repartition topic is inserted. `StreamsBuilder.build` merges the sources of the
same topics, applies the optimizations, and creates the physical nodes of each logical node.
Physical nodes that are connected, or that share a store, form a sub-topology, which becomes one
task per partition.

`logical_plan` is an immutable record of the program that a built topology keeps.
`argument_checks`, `async_argument_checks`, `naming` and `call_site` are used by all of these
packages: errors name the file and line of the declaration in the user's program.
"""
