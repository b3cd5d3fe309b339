"""Reading and writing Decaton's tasks."""
