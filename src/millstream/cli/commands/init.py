"""`millstream init shop`: a project that runs."""

from __future__ import annotations

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

import click

from millstream.cli.output import print_json
from millstream.cli.project import create_project


@click.command("init")
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to; by default a folder of that name, made here.",
)
@click.option("--json", "as_json", is_flag=True, help="Tell files and commands as JSON.")
def command(name: str, folder: Path | None, as_json: bool) -> None:
    """Make a project that runs: application, test, containers.

    NAME is that of the project and of its application. What it prints next brings the test to pass
    and the application to run, on a broker of its own.
    """
    target = Path(name) if folder is None else folder
    written = create_project(target, name)
    steps = [
        *([] if find_spec("pytest") else [("pip install pytest", "")]),
        ("python -m pytest", "the test: no broker, no Spark"),
        ("millstream run app.py --with-broker", "on a broker of its own; Ctrl-C stops it"),
    ]
    beside = [("python orders.py", "sends orders, and shows the revenue")]
    here = None if os.path.samefile(target, ".") else f"cd {shlex.quote(str(target))}"
    if as_json:
        print_json(
            {
                "folder": str(target.resolve()),
                "files": [path.name for path in written],
                "commands": [command for command, _ in steps],
                "commands_beside": [command for command, _ in beside],
            }
        )
        return
    click.echo(f"Made {name} in {target}: {', '.join(path.name for path in written)}.\n")
    if here is not None:
        click.echo(f"  {here}")
    _tell(steps)
    click.echo("\nand in another terminal, in the same folder:\n")
    _tell(beside)
    click.echo("\nREADME.md there says more.")


def _tell(steps: list[tuple[str, str]]) -> None:
    for command_line, comment in steps:
        click.echo(f"  {command_line:<38}  # {comment}" if comment else f"  {command_line}")
