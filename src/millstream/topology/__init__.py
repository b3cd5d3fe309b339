"""What to compute: from the DSL's words to nodes, stores, internal topics and sub-topologies.

Names, numbers and order are those of Kafka Streams, so that topics and stores of a Java application
fit. The rooms, each of which knows only those before it:

- `options`: what the user may say about windows, joins and stores.
- `operations`: what a processor node does, as data.
- `physical`: source, processor and sink nodes, the `Topology` of them, and its sub-topologies.
- `logical`: the graph of the program's words, which write themselves into a `Topology`.
- `passes`: what is done to the graph before, and `build`, which does all of it.
- `dsl`: what the user writes with: `StreamsBuilder`, streams, tables, groups.

Beside them `logical_plan` is what a built topology keeps of the program; `arguments`, `naming` and
`call_site` serve all rooms.
"""
