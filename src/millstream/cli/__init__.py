"""The command line `millstream`.

Each subcommand is a module of `commands` that defines a click command, listed in `main.COMMANDS`;
`main` turns errors of Millstream into a line on stderr and an exit code. `programs` finds the
topology, the settings and the application in a user's program without running it, runs it as a
child that is restarted after changes and ends with the command, or loads it in its own process,
because one process cannot load two versions. `cluster_options` connects to the cluster,
`application_server` to a running application over HTTP, and `output` writes tables, JSON and
messages. `demo` has the parts of `millstream demo`; `init` fills the templates of `templates`.
"""

from __future__ import annotations

from millstream.cli.main import main

__all__ = ["main"]
