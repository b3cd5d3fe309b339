"""Queries and their results: plain data that all packages may import."""
