"""The states of threads, tasks and application instances, and their transitions."""
