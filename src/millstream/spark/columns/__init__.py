"""Converts keys and values to columns of DataFrames and back."""
