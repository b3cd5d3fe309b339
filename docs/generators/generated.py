"""Common code of the generators: write the files, or check whether they are up to date."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_or_check(
    description: str | None, files: Iterable[tuple[Path, str]], arguments: Sequence[str] = ()
) -> int:
    """Write each outdated file; with `--check`, print the differences instead.

    Args:
        description: the program's docstring, whose first line becomes the help text.
        files: the paths with their expected texts.
        arguments: the command line arguments.

    Returns:
        The exit code: 1 if `--check` found an outdated file, else 0.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="only check whether the files are up to date"
    )
    check = parser.parse_args(arguments).check
    outdated = False
    for path, text in files:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before == text:
            continue
        outdated = True
        print(f"{path.name} {'is out of date' if check else 'was written'}")
        if check:
            is_now, should_be = before.splitlines(keepends=True), text.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(is_now, should_be, path.name, "should be"))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and outdated)
