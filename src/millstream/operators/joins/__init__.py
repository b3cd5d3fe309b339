"""Joins: of streams, of streams with tables, of tables by their own or by a foreign key."""
