"""Where state lies on a host, and whose it is."""
