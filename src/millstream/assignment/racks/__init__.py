"""Tasks near the replicas of what they read."""
