"""What the driver and its stream threads say to each other, and the wire that carries it."""
