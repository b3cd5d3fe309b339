"""What to compute: from the DSL's words to nodes, stores, internal topics and sub-topologies.

`builder`, `stream`, `grouped` and `table` are what the user writes. Each call adds a node to the
logical graph (`graph`), which `StreamsBuilder.build` writes into a `Topology` of physical nodes
(`topology`, `nodes`); that one is cut into sub-topologies (`subtopology`) and can be printed
(`describe`). Names, numbers and order are those of Kafka Streams, so that topics and stores of a
Java application fit.
"""
