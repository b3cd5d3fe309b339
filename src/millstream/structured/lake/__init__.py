"""Rows of a stage into a table of the lake: one micro-batch, one commit, each row once."""
