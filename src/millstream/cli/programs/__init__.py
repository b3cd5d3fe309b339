"""Users' programs: loading them without running them, and finding in them what a command needs."""
