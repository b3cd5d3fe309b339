"""The inside of a stream task: from queued records to outputs."""
