"""Rack-aware assignment: places tasks near the replicas of their partitions."""
