"""What `millstream demo` shows: a shop's orders, added up while they come, and checked."""
