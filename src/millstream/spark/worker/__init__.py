"""What runs in the Python worker that is a stream thread."""
