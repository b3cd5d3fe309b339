"""Comparing two versions of a program: state, topics and settings."""
