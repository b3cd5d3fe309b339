"""The operator of a subscription, and its parts: tasks are taken, begun, settled."""
