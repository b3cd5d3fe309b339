"""How a stream thread's code gets to a worker, and whether it runs there as on the driver."""
