"""Keys and values as columns of DataFrames."""
