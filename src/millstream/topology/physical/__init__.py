"""The physical topology: nodes, stores, topics, sub-topologies."""
