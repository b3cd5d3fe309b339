"""Membership in the consumer group, over kafka-python: joining, staying, committing, leaving."""
