"""What is done to the logical graph before it becomes physical nodes."""
