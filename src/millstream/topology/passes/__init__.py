"""From the logical graph to the physical topology.

`build` runs the passes and writes the result. The passes change the graph: `merge_sources` reads
each topic once; `merge_repartitions`, `self_join` and `source_changelogs` are Kafka Streams'
optimizations; `null_keys` opens repartition topics for records without a key.
"""
