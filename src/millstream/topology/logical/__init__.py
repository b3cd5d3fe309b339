"""The logical graph: one node per word of the DSL."""
