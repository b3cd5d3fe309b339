"""The words of the DSL: streams, tables, groups, and how each is written into the logical graph."""
