"""The checks that the driver makes before an application starts.

`topology_checks` run first and need no cluster; `cluster_checks` follow. `topology_topics` returns
the topics of a topology under their real names.
"""
