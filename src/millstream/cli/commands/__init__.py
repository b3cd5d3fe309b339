"""The subcommands, a module each; what a module offers is its `command`."""
