"""Users' programs: loading them without running them, and finding objects in them."""
