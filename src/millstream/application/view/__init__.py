"""What the console shows, as one document of plain data."""
