"""How a program is run: as Python would run it, or by the application that it only defines."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from millstream.cli.programs.load import (
    importable,
    importing,
    no_module,
    package_error,
    package_hint,
    program_of,
)
from millstream.errors import StreamsError


def is_script(program: str) -> bool:
    """Whether it runs something itself: whether it has `if __name__ == "__main__":`.

    Raises:
        StreamsError: there is no such file or module.
    """
    named = program_of(program)
    return named.name is None and any(map(_is_main, _tree(source_of(program)).body))


def source_of(program: str) -> Path:
    """The file of a program.

    Raises:
        StreamsError: there is no such file or module, or the package that it is in fails.
    """
    named = program_of(program)
    package = Path(*named.called.split(".")) if named.is_module else named.file
    if (error := package_error(package)) is not None:
        raise error
    if not named.is_module:
        if not named.file.is_file():
            raise StreamsError(
                f"There is no file {named.file}. Give the path of the program's file, or its name "
                "as a module: shop.orders"
            )
        return named.file
    # To find a module is to import the packages that it is in.
    with importable(Path.cwd()), importing(named):
        found = importlib.util.find_spec(named.called)
    if found is None or found.origin is None or not Path(found.origin).is_file():
        raise no_module(named)
    return Path(found.origin)


def command_for(program: str, arguments: Sequence[str]) -> list[str]:
    """The words that run a program in a process of its own.

    Raises:
        StreamsError: there is no such program; or it has arguments, and does not run by itself.
    """
    named = program_of(program)
    if not named.is_module and _imports_relatively(source_of(program)):
        raise StreamsError(
            f"{program} has relative imports, which do not work in a file that is run by its path"
            f"{package_hint(named) or '.'}"
        )
    if is_script(program):
        how = ["-m", named.called] if named.is_module else [str(named.file)]
        return [sys.executable, *how, *arguments]
    if arguments:
        raise StreamsError(
            f"{program} takes no arguments ({' '.join(arguments)}): it does not run anything "
            'itself under `if __name__ == "__main__":`.'
        )
    return [sys.executable, "-m", "millstream", "run", program]


def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError):
        # Python says it better when it runs the file.
        return ast.parse('if __name__ == "__main__": ...')


def _imports_relatively(file: Path) -> bool:
    """Whether a file has a relative import that is always executed.

    One in a function, under `if TYPE_CHECKING:` or in a `try` need not be, or is caught.
    """
    statements = _tree(file).body
    return any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in statements)


def _is_main(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    names = {ast.unparse(part) for part in (statement.test.left, *statement.test.comparators)}
    return names == {"__name__", "'__main__'"}
