"""What an application remembers of itself, for those who look at it while it runs."""
