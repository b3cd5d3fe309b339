"""From the logical graph to the physical topology.

`build` runs the passes, which change the graph, and writes the result. It contains the short
passes: each topic is read once, repartition topics accept records without a key where a join needs
them, and two of Kafka Streams' optimizations. `merge_repartitions` is the third.
"""
