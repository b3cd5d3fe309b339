"""The physical topology: what tasks are made of.

`nodes` are its nodes, `topology` holds them; `topology_stores`, `suppliers` and `copartition` know
its rules. `subtopology` cuts it into the parts that become tasks; `internal_topics` are the topics
it brings. `describe` and `mermaid` show it. `java_order` and `source_names` keep Kafka Streams'
order where that is of a hash set; `windowed_serdes` serve windowed keys.
"""
