"""Users' programs: loads them without running them, and finds their objects."""
