"""The command `millstream`: a broker for development, and looks at programs and machines.

Each subcommand is a module of this package, listed in `millstream.cli.main.COMMANDS`.
"""

from __future__ import annotations

from millstream.cli.main import main

__all__ = ["main"]
