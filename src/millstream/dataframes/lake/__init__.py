"""Writes the rows of a stage to a lake table exactly once.

Each micro-batch is one commit.
"""
