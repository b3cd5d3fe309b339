"""A new project, made of the templates in `templates/`."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from millstream.embedded.jars import KAFKA_VERSION
from millstream.errors import StreamsError

#: The templates, and what their files are called.
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
#: What may name a group, topics, a folder, a Python project and a container.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_SERVER: Final = """\
    # The console, queries and probes: `millstream console`. On this machine only.
    server_port=0,
"""


def create_project(folder: Path, name: str) -> list[Path]:
    """Write a project.

    Args:
        folder: made if it is not there; must be empty.
        name: of the project and of the application.

    Returns:
        The files.

    Raises:
        StreamsError: the name cannot be used, the folder is not empty, or cannot be written to.
    """
    if not _NAME.fullmatch(name):
        raise StreamsError(
            f"{name!r} cannot name an application: use small letters, digits, '-' and '_', with a "
            "letter first, as in shop or shop-orders."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StreamsError(f"{folder} is not an empty folder. Choose another name or folder.")
    values = {"name": name, "kafka": KAFKA_VERSION, "server": _SERVER if can_serve() else ""}
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for template, file in _FILES.items():
            path = folder / file
            path.write_text(_filled(template, values), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise StreamsError(f"{folder} cannot be written to: {error}.") from error
    return written


def _filled(template: str, values: dict[str, str]) -> str:
    text = files("millstream.cli").joinpath("templates", f"{template}.template")
    filled = text.read_text(encoding="utf-8")
    for name, value in values.items():
        filled = filled.replace(f"{{{{{name}}}}}", value)
    return filled


def can_serve() -> bool:
    """Whether what the server needs is installed here."""
    return all(map(find_spec, ("starlette", "uvicorn")))
