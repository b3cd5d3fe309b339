"""The code of a stream thread that runs in the Python worker."""
