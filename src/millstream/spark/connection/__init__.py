"""The control connection between the driver and its stream threads."""
