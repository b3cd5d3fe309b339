"""The checks that the driver makes before an application starts.

`topology_checks` come first and need no cluster; `cluster_checks` follow. `topology_topics` returns
the topics of a topology under their real names.
"""
