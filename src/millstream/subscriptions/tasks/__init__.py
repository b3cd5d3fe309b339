"""Decaton's tasks as they stand in topics: written, and read again."""
