"""A user's program as a module: found by its path or its dotted name, loaded, not run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

from millstream.errors import StreamsError


class Program(NamedTuple):
    """A user's program: how the user calls it, its file, and the name of a thing in it."""

    called: str
    file: Path
    name: str | None

    def __str__(self) -> str:
        return self.called

    @property
    def is_module(self) -> bool:
        """Whether it is the name of a module, and not the path of a file."""
        return is_module(self.called)


def program_of(text: str) -> Program:
    """The program that a word of the command line means: PROGRAM, or PROGRAM:NAME."""
    called, name = _split(text)
    file = Path(*called.split(".")).with_suffix(".py") if is_module(called) else Path(called)
    return Program(called, file, name)


@contextmanager
def loaded(program: Program) -> Iterator[tuple[Program, ModuleType]]:
    """Load a program like a module; meanwhile it may import its neighbours, as when it is run.

    What stands under `if __name__ == "__main__":` is not run.

    Raises:
        StreamsError: there is no such file or module, or it fails while it is loaded.
    """
    with importable(Path.cwd() if program.is_module else program.file.parent):
        if program.is_module:
            module = _imported(program)
            yield program._replace(file=Path(str(module.__file__))), module
        else:
            yield program, _executed(program)


@contextmanager
def loaded_quietly(program: Program) -> Iterator[tuple[Program, ModuleType]]:
    """The same, and meanwhile what it prints goes to stderr: stdout is the command's.

    Raises:
        StreamsError: as `loaded`.
    """
    with redirect_stdout(sys.stderr), loaded(program) as found:
        yield found


def is_module(called: str) -> bool:
    """Whether a program is called by the name of a module, and not by the path of a file."""
    if Path(called).is_file() or called.endswith(".py"):
        return False
    return all(part.isidentifier() for part in called.split("."))


def fail(what: str, program: Program, error: Exception) -> NoReturn:
    """Tell the program's own error by the innermost line of the program's file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == program.file.resolve()
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = "" if line is None else f" (line {line})"
    hint = package_hint(program) if "attempted relative import" in str(error) else ""
    raise StreamsError(f"{what}{where}: {type(error).__name__}: {error}{hint}") from error


def package_error(package: Path) -> StreamsError | None:
    """The error for a package in place of a program, which names the module to give instead.

    Args:
        package: the folder of the package, or any other path.

    Returns:
        None for a path that is no package with a `__main__.py`, and for a package whose
        `__init__.py` has code: that may be the program.
    """
    if not (package / "__main__.py").is_file() or _has_code(package / "__init__.py"):
        return None
    folder, name = package.resolve().parent, f"{package.resolve().name}.__main__"
    return StreamsError(
        f"{package} is a package without a program of its own. In the folder {folder}, give "
        f"{name} instead."
    )


def package_hint(program: Program) -> str:
    """The sentence that names the module of a file in a package; empty outside of packages."""
    file = program.file.resolve()
    folder, parts = file.parent, [file.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) == 1:
        return ""
    name = ".".join(parts) + (f":{program.name}" if program.name else "")
    return f". The file is a module of a package: in the folder {folder}, give {name} instead."


def _has_code(file: Path) -> bool:
    """Whether a file has statements other than docstrings and dunder names."""
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
    called, colon, name = text.rpartition(":")
    # What follows the colon of a drive letter is no name.
    if colon and name.isidentifier() and not Path(text).exists():
        return called, name
    return text, None


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let the program import its neighbours, as `python app.py` does."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _executed(program: Program) -> ModuleType:
    path = program.file
    if not path.is_file():
        if (package := package_error(path)) is not None:
            raise package
        hint = " It is a directory." if path.is_dir() else ""
        raise StreamsError(
            f"There is no file {path}.{hint} Give the path of the program's file, or its name as a "
            "module: shop.orders"
        )
    # A name of its own: a program called json.py must not take the place of another module.
    name = f"_described_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StreamsError(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickling look their module up by its name.
    sys.modules[name] = module
    with _telling(program):
        spec.loader.exec_module(module)
    return module


def _imported(program: Program) -> ModuleType:
    name = program.called
    if (package := package_error(Path(*name.split(".")))) is not None:
        raise package
    importlib.invalidate_caches()
    with importing(program):
        module = importlib.import_module(name)
    if getattr(module, "__file__", None) is None:
        raise StreamsError(
            f"There is no file {name}. It is a directory. Give the path of the program's file, or "
            "its name as a module: shop.orders"
        )
    return module


@contextmanager
def importing(program: Program) -> Iterator[None]:
    """Tell what goes wrong while a module, or a package that it is in, is imported.

    Raises:
        StreamsError: there is no such module, or it fails while it is loaded.
    """
    with _telling(program):
        try:
            yield
        except ModuleNotFoundError as error:
            # A module that the program itself misses is the program's failure.
            if error.name is None or not f"{program}.".startswith(f"{error.name}."):
                raise
            raise no_module(program, f": {error}") from error


def no_module(program: Program, why: str = "") -> StreamsError:
    """What is said where a program is called like a module, and there is none."""
    return StreamsError(
        f"There is no file and no module {program}{why}. Give the path of the program's file, or "
        "run this where the module can be imported."
    )


@contextmanager
def _telling(program: Program) -> Iterator[None]:
    """Tell what goes wrong while a program is loaded."""
    try:
        yield
    except StreamsError:
        raise
    except SystemExit as error:
        raise StreamsError(
            f"{program} ended the process while it was loaded (exit code {error.code}). Put what "
            'runs the program under `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        fail(f"{program} could not be loaded", program, error)
