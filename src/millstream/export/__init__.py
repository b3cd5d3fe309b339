"""Metrics for other systems: each module needs an extra of its own."""
