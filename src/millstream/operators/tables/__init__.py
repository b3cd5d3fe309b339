"""Operators of tables: where they begin, what computes rows from rows, what holds changes back."""
