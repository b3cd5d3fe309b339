"""The folder for temporary files of a test run, which is removed after the run.

Processes that a test kills cannot remove their files. What others leave there fails the run.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from itertools import islice
from pathlib import Path

#: Files of killed processes; of a `MockProcessorContext` that is not closed, which removes them at
#: the end of its process; and the default state directory, which the programs in docs use.
_EXPECTED = re.compile(
    r"(?:spark-|blockmgr-|artifacts-|liblz4-java-|snappy-|millstream-kafka-"
    r"|millstream-mock-context-).*|kafka-streams"
)


class TemporaryFolder:
    """Replaces the system's folder for temporary files in this process and those it starts."""

    def __init__(self) -> None:
        # The folders of pytest's `tmp_path` of the last runs stay in the system's folder.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-tests-"))
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)

    def unexpected(self) -> list[str]:
        """The files that a test should have removed, with the first files in folders."""
        return [
            str([each.name, *(str(file.relative_to(each)) for file in islice(each.rglob("*"), 9))])
            for each in sorted(self.folder.iterdir())
            if not _EXPECTED.fullmatch(each.name)
        ]

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
