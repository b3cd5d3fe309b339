"""What is counted and measured: sensors, who owns them, and how their values travel."""
