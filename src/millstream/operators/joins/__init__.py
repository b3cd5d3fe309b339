"""Joins of streams, of streams with tables, and of tables by primary or foreign key."""
