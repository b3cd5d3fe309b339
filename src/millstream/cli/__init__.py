"""The command line `millstream`.

Each subcommand is a click command in a module of `commands`, listed in `main.COMMANDS`. `main`
prints errors of Millstream on stderr and returns an exit code. `programs` loads a user's program
without running it, to find its topology, settings and application; it does so in a subprocess if
several versions are needed, because one process cannot load two. It also runs a program as a child
process, which is restarted after changes and ends with the command. `cluster_options` connects to
the cluster, `application_server` connects to a running application over HTTP, and `output` writes
tables, JSON and messages. `demo` contains the parts of `millstream demo`; `init` fills in the
templates in `templates`.
"""

from __future__ import annotations

from millstream.cli.main import main

__all__ = ["main"]
