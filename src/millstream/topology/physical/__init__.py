"""The physical topology, from which tasks are created.

`topology` contains the `Topology`, which consists of `nodes`; `suppliers` and `copartition`
validate it. `subtopology` divides the topology into the sub-topologies that become tasks.
`internal_topic_configs` defines its internal topics, and `dataframe_stage` the Structured Streaming
queries between sub-topologies. `topology_description` describes the topology;
`flow_graph` is the description as a graph, which `mermaid` and `drawing` draw.
`java_order` reproduces the order of Java's collections, and `windowed_serdes` provides serdes and
partitioners for windowed keys.
"""
