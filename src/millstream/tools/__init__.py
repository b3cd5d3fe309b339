"""What is done to applications from outside: what they are made of, compared and reset."""
