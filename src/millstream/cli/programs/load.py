"""Loads users' programs by path or dotted name, and builds their commands."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

from millstream.errors import StreamsError


class Program(NamedTuple):
    """A user's program.

    Contains the reference from the command line, the file, and the name of an object.
    """

    reference: str
    file: Path
    name: str | None

    def __str__(self) -> str:
        return self.reference

    @property
    def is_module(self) -> bool:
        return is_module(self.reference)


def parse_program(text: str) -> Program:
    """Parse the argument for a program: PROGRAM or PROGRAM:NAME."""
    reference, name = _split(text)
    file = (
        Path(*reference.split(".")).with_suffix(".py") if is_module(reference) else Path(reference)
    )
    return Program(reference, file, name)


@contextmanager
def loaded(program: Program) -> Iterator[tuple[Program, ModuleType]]:
    """Load a program like a module.

    The program's folder stays on the import path until the context ends. Code under `if __name__ ==
    "__main__":` does not run. Raises StreamsError if the file or module does not exist, or fails to
    load.
    """
    with on_import_path(Path.cwd() if program.is_module else program.file.parent):
        if program.is_module:
            module = _imported(program)
            yield program._replace(file=Path(str(module.__file__))), module
        else:
            yield program, _executed(program)


@contextmanager
def loaded_quietly(program: Program) -> Iterator[tuple[Program, ModuleType]]:
    """Load a program, and redirect its output to stderr.

    Stdout is for the output of the command.
    """
    with redirect_stdout(sys.stderr), loaded(program) as found:
        yield found


def is_module(reference: str) -> bool:
    """Return whether a reference is the name of a module, not the path of a file."""
    if Path(reference).is_file() or reference.endswith(".py"):
        return False
    return all(part.isidentifier() for part in reference.split("."))


def raise_program_error(failure: str, program: Program, error: Exception) -> NoReturn:
    """Raise StreamsError for an error in a program, with the line in its file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == program.file.resolve()
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = "" if line is None else f" (line {line})"
    hint = package_hint(program) if "attempted relative import" in str(error) else ""
    raise StreamsError(f"{failure}{where}: {type(error).__name__}: {error}{hint}") from error


def package_error(package: Path) -> StreamsError | None:
    """Return an error if a package is passed instead of a program.

    The error contains the module to use.

    Returns None for a path that is not a package with a `__main__.py`, and for a package whose
    `__init__.py` contains code, because that may be the program.
    """
    if not (package / "__main__.py").is_file() or _has_code(package / "__init__.py"):
        return None
    folder, name = package.resolve().parent, f"{package.resolve().name}.__main__"
    return StreamsError(
        f"{package} is a package, not a program. In the folder {folder}, use {name} instead."
    )


def package_hint(program: Program) -> str:
    """Return a sentence with the module name of a file in a package.

    Returns an empty string for other files.
    """
    file = program.file.resolve()
    folder, parts = file.parent, [file.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) == 1:
        return ""
    name = ".".join(parts) + (f":{program.name}" if program.name else "")
    return f". The file is a module of a package: in the folder {folder}, use {name} instead."


def _has_code(file: Path) -> bool:
    """Return whether a file has statements other than docstrings and dunder names."""
    if not file.is_file():
        return False
    try:
        body = ast.parse(file.read_bytes(), str(file)).body
    except (SyntaxError, ValueError):
        return True  # reported when it is imported
    return not all(map(_is_description, body))


def _is_description(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return all(ast.unparse(target).startswith("__") for target in statement.targets)
    is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_future or is_text


def _split(text: str) -> tuple[str, str | None]:
    reference, colon, name = text.rpartition(":")
    # The part after the colon of a drive letter is not a name.
    if colon and name.isidentifier() and not Path(text).exists():
        return reference, name
    return text, None


@contextmanager
def on_import_path(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path temporarily, as `python app.py` does."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _no_file(what: str) -> StreamsError:
    advice = "Use the path of the program's file, or its name as a module: shop.orders"
    return StreamsError(f"There is no file {what} {advice}")


def _executed(program: Program) -> ModuleType:
    path = program.file
    if not path.is_file():
        if (package := package_error(path)) is not None:
            raise package
        hint = " It is a directory." if path.is_dir() else ""
        raise _no_file(f"{path}.{hint}")
    # A prefix, because a program called json.py must not replace the module json.
    name = f"_described_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StreamsError(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Before the module runs: dataclasses and pickle look up modules by name.
    sys.modules[name] = module
    with _load_errors(program):
        spec.loader.exec_module(module)
    return module


def _imported(program: Program) -> ModuleType:
    name = program.reference
    if (package := package_error(Path(*name.split(".")))) is not None:
        raise package
    importlib.invalidate_caches()
    with import_errors(program):
        module = importlib.import_module(name)
    if getattr(module, "__file__", None) is None:
        raise _no_file(f"{name}. It is a directory.")
    return module


@contextmanager
def import_errors(program: Program) -> Iterator[None]:
    """Convert errors that occur while a module or its packages are imported.

    Raises StreamsError if the module does not exist or fails to load.
    """
    with _load_errors(program):
        try:
            yield
        except ModuleNotFoundError as error:
            # A missing module that the program imports is an error of the program.
            if error.name is None or not f"{program}.".startswith(f"{error.name}."):
                raise
            raise module_not_found(program, f": {error}") from error


def module_not_found(program: Program, why: str = "") -> StreamsError:
    return StreamsError(
        f"There is no file and no module {program}{why}. Use the path of the program's file, or "
        "run the command where the module can be imported."
    )


@contextmanager
def _load_errors(program: Program) -> Iterator[None]:
    try:
        yield
    except StreamsError:
        raise
    except SystemExit as error:
        raise StreamsError(
            f"{program} ended the process while it was loaded (exit code {error.code}). Put the "
            'code that runs the program under `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        raise_program_error(f"{program} could not be loaded", program, error)


def is_script(program: str) -> bool:
    """Return whether a program has `if __name__ == "__main__":`.

    Raises the same errors as `source_of`.
    """
    named = parse_program(program)
    return named.name is None and any(map(_is_main, _tree(source_of(program)).body))


def source_of(program: str) -> Path:
    """Return the file of a program.

    Raises StreamsError if there is no such file or module, or importing its package fails.
    """
    named = parse_program(program)
    package = Path(*named.reference.split(".")) if named.is_module else named.file
    if (error := package_error(package)) is not None:
        raise error
    if not named.is_module:
        if not named.file.is_file():
            raise _no_file(f"{named.file}.")
        return named.file
    # Finding a module imports its packages.
    with on_import_path(Path.cwd()), import_errors(named):
        found = importlib.util.find_spec(named.reference)
    if found is None or found.origin is None or not Path(found.origin).is_file():
        raise module_not_found(named)
    return Path(found.origin)


def command_for(program: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a program in its own process.

    Raises StreamsError if the program does not exist, has relative imports but is passed as a
    path, or gets arguments but has no `if __name__ == "__main__":`.
    """
    named = parse_program(program)
    if not named.is_module and _imports_relatively(source_of(program)):
        raise StreamsError(
            f"{program} has relative imports, which do not work in a file that is run by its path"
            f"{package_hint(named) or '.'}"
        )
    if is_script(program):
        how = ["-m", named.reference] if named.is_module else [str(named.file)]
        return [sys.executable, *how, *arguments]
    if arguments:
        raise StreamsError(
            f"{program} takes no arguments ({' '.join(arguments)}): it has no "
            '`if __name__ == "__main__":`.'
        )
    return [sys.executable, "-m", "millstream", "run", program]


def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError):
        # Python reports the error better when it runs the file.
        return ast.parse('if __name__ == "__main__": ...')


def _imports_relatively(file: Path) -> bool:
    """Return whether a file has a relative import that is always executed.

    Imports in functions, under `if TYPE_CHECKING:` or in a `try` do not count.
    """
    statements = _tree(file).body
    return any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in statements)


def _is_main(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    names = {ast.unparse(part) for part in (statement.test.left, *statement.test.comparators)}
    return names == {"__name__", "'__main__'"}
