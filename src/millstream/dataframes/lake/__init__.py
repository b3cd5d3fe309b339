"""Writes the rows of a stage to a lake table exactly once, with one commit per micro-batch."""
