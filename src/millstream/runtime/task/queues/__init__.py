"""What a task has fetched and not taken, and what it has taken and not finished."""
