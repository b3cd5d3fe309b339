"""Ships a stream thread's code to a worker and compares the worker's environment."""
