"""Joins: stream-stream, stream-table, and table-table by primary or foreign key."""
