"""What the broker's JVM has loaded, kept for later starts (class data sharing, JEP 350)."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_UNFINISHED = "classes.jsa"


class ClassArchive:
    """The loaded and checked classes of a broker, in a file that later ones map into memory.

    A broker is there after 1.2 s in place of 2.1 s, for 2.0 s of a processor in place of 3.3. The
    first broker that ends in an orderly way writes it, which takes it two seconds once. A JVM
    leaves a file aside that does not fit, so that nothing can break by it.

    Args:
        cache: the folder in which it is kept.
        java: the `java` program.
        class_path: the broker's jars.
    """

    def __init__(self, cache: Path, java: Path, class_path: Sequence[Path]) -> None:
        # Java's own file tells of an update that keeps the path.
        program = java.resolve()
        marks = [str(program), str(program.stat().st_mtime_ns), *map(str, class_path)]
        digest = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
        self._path = cache / f"classes-{digest}.jsa"
        self._is_written = self._path.exists()

    def options(self) -> tuple[str, ...]:
        """For the JVM: to use it, or to write it into its working directory."""
        # Without a log, since that would tell on stdout of each class that is left out.
        if self._is_written:
            return (f"-XX:SharedArchiveFile={self._path}", "-Xlog:disable")
        return (f"-XX:ArchiveClassesAtExit={_UNFINISHED}", "-Xlog:disable")

    def keep(self, folder: Path) -> None:
        """Keep what a JVM has written that ended by itself, if it has.

        Args:
            folder: its working directory.
        """
        written = folder / _UNFINISHED
        if self._is_written or not written.exists():
            return
        whole = self._path.with_suffix(f".{os.getpid()}")
        # A full or read-only cache costs the next start a second, and must not disturb this end.
        with suppress(OSError):
            shutil.copyfile(written, whole)
            whole.replace(self._path)
        with suppress(OSError):
            whole.unlink()
