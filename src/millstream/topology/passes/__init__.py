"""The passes that turn the logical graph into the physical topology.

`build` runs the passes, which change the graph, and creates the topology. It also contains the
short passes: merging sources of the same topics, passing records without a key to the joins that
process them, and two of Kafka Streams' optimizations. `merge_repartitions` contains the third.
"""
