"""Tools for applications, which the command line and programs use; they know no command line.

`topology_facts` writes what outlives a program into a document: the names of topics and stores, the
numbers of sub-topologies, and formats, with the fields of typed serdes (`serde_shapes`). `upgrade`
compares two such documents. `application_topics` lists the topics of an application and their state
on the cluster. `application_reset` plans and executes a reset.
"""
