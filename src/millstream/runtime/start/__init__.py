"""Checks in the driver before an application starts: `topology_checks` without the cluster, then
`cluster_checks`. `topology_topics` has the topics of a topology under their real names."""
