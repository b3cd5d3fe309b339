"""The subcommands: each module defines one as `command`."""
