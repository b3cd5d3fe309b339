"""Questions to the cluster, and changes of its topics."""
