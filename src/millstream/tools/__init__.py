"""Tools for applications.

The command line uses them, but they do not depend on it.

`topology_facts` documents the facts that outlive a program: the names of topics and stores, the
numbers of sub-topologies, and formats, with the fields of typed serdes (`serde_shapes`). `upgrade`
compares two such documents. `application_topics` lists the topics of an application and their state
on the cluster. `application_reset` plans and executes a reset.
"""
