"""`millstream init shop`: create a project."""

from __future__ import annotations

import os
import re
import shlex
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from millstream.cli.output import print_json
from millstream.embedded.jars import KAFKA_VERSION
from millstream.errors import StreamsError

#: Template names and the names of the created files.
_FILES: Final = {
    "app.py": "app.py",
    "test_app.py": "test_app.py",
    "orders.py": "orders.py",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "compose.yaml": "compose.yaml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "dockerignore": ".dockerignore",
}
#: Valid as the name of a group, a topic, a folder, a Python project and a container.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_SERVER: Final = """\
    # The console, queries and probes, on this machine only: `millstream console`.
    server_port=0,
"""


def create_project(folder: Path, name: str) -> list[Path]:
    """Create a project in a new or empty folder; return the created files.

    Raises StreamsError if the name is invalid, or the folder is not empty or not writable.
    """
    if not _NAME.fullmatch(name):
        raise StreamsError(
            f"{name!r} is not a valid application name. Use lowercase letters, digits, '-' and "
            "'_', and begin with a letter, as in shop or shop-orders."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StreamsError(f"{folder} is not an empty folder. Choose another name or folder.")
    values = {"name": name, "kafka": KAFKA_VERSION, "server": _SERVER if has_server_extra() else ""}
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for template, file in _FILES.items():
            path = folder / file
            path.write_text(_filled(template, values), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise StreamsError(f"Cannot write to {folder}: {error}.") from error
    return written


def _filled(template: str, values: dict[str, str]) -> str:
    text = files("millstream.cli").joinpath("templates", f"{template}.template")
    filled = text.read_text(encoding="utf-8")
    for name, value in values.items():
        filled = filled.replace(f"{{{{{name}}}}}", value)
    return filled


def has_server_extra() -> bool:
    return all(map(find_spec, ("starlette", "uvicorn")))


@click.command("init")
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the project; by default NAME in the working directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the files and commands as JSON.")
def command(name: str, folder: Path | None, as_json: bool) -> None:
    """Create a project with an application and a test.

    NAME is the name of the project and of its application. Prints the commands that run the test,
    and the application on its own broker.
    """
    target = Path(name) if folder is None else folder
    written = create_project(target, name)
    steps = [
        *([] if find_spec("pytest") else [("pip install pytest", "")]),
        ("python -m pytest", "the test: no broker, no Spark"),
        ("millstream run app.py --with-broker", "on its own broker; Ctrl-C stops it"),
    ]
    beside = [("python orders.py", "sends orders and shows the revenue")]
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
    click.echo(f"Created {name} in {target}: {', '.join(path.name for path in written)}.\n")
    if here is not None:
        click.echo(f"  {here}")
    _print_commands(steps)
    click.echo("\nand in another terminal, in the same folder:\n")
    _print_commands(beside)
    click.echo("\nSee README.md for more.")


def _print_commands(steps: list[tuple[str, str]]) -> None:
    for command_line, comment in steps:
        click.echo(f"  {command_line:<38}  # {comment}" if comment else f"  {command_line}")
