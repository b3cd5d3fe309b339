"""What all generators do with what they have made: write it, or tell whether it is up to date."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def written(
    description: str | None, files: Iterable[tuple[Path, str]], arguments: Sequence[str] = ()
) -> int:
    """Write each file that is not as it should be; with `--check`, show how it differs instead.

    Args:
        description: of the program, for its help: the first line is taken.
        files: each with the text that it should have.
        arguments: of the program, beside those that it heeds itself.

    Returns:
        The exit code: 1 if there was something to write, and it was only looked for.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only tell whether it is up to date")
    check = parser.parse_args(arguments).check
    outdated = False
    for path, text in files:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before == text:
            continue
        outdated = True
        print(f"{path.name} {'is out of date' if check else 'is written'}")
        if check:
            is_now, should_be = before.splitlines(keepends=True), text.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(is_now, should_be, path.name, "should be"))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and outdated)
