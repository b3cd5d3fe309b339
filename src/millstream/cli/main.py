"""The entry point of the command line: subcommands, errors and exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Final

import click

from millstream.cli.commands import (
    broker,
    completion,
    console,
    demo,
    describe,
    doctor,
    init,
    lag,
    query,
    reset,
    run,
    topics,
    upgrade_check,
)
from millstream.cli.output import printable
from millstream.config.fields import did_you_mean
from millstream.errors import StreamsError

#: The exit code that shells report for a program ended by Ctrl-C.
_INTERRUPTED: Final = 130

#: The subcommands by heading, in the order of the help.
COMMANDS: Final[Mapping[str, tuple[click.Command, ...]]] = {
    "Develop": (init.command, run.command, broker.command, demo.command, doctor.command),
    "Inspect": (describe.command, topics.command, lag.command, query.command, console.command),
    "Maintain": (upgrade_check.command, reset.command),
    "Shell": (completion.command,),
}


class _CommandGroup(click.Group):
    """A group that lists its commands under headings and suggests corrections."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(len(name) for name in self.commands)
        room = formatter.width - 6 - longest
        for heading, commands in COMMANDS.items():
            rows = [(each.name or "", each.get_short_help_str(room)) for each in commands]
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), line) for name, line in rows])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.commands)
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    "millstream", cls=_CommandGroup, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(version("millstream"), message="millstream %(version)s")
def millstream() -> None:
    """Kafka Streams and Decaton for Python, on Spark."""


for _commands in COMMANDS.values():
    for _command in _commands:
        millstream.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns the exit code: 0 for success, 1 for a printed error or a failed check, 2 for wrong
    arguments, 130 after Ctrl-C.
    """
    words = None if argv is None else list(argv)
    try:
        code = millstream.main(words, prog_name="millstream", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        click.echo(printable(message.getvalue(), lines=True), err=True, nl=False)
        return error.exit_code
    except StreamsError as error:
        click.echo(f"millstream: {printable(str(error), lines=True)}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Discard further output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0
