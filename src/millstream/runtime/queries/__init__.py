"""Queries in the stream thread: what it is asked, and how it answers between two batches."""
