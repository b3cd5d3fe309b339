"""Stores of the DSL's own: what operators hold back or remember of each other."""
