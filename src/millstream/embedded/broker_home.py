"""The folder of one embedded broker, its Java process and its guard process."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

from millstream.embedded.broker_security import BrokerSecurity
from millstream.embedded.broker_settings import (
    Ports,
    logging_properties,
    meta_properties,
    server_properties,
)
from millstream.embedded.jars import KAFKA_VERSION

_UNFINISHED = "classes.jsa"

_JVM_OPTIONS: tuple[str, ...] = (
    *("-Xms128m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
    *("-Djava.awt.headless=true", "-Dlog4j2.configurationFile=log4j2.properties"),
    # The JVM and the compression libraries unpack files into the folder, which is removed later.
    *("-Djava.io.tmpdir=tmp", "-XX:ErrorFile=hs_err.log"),
)
_GUARD_TIMEOUT_S = 5
_LOG_TAIL_LINES = 12


class ClassArchive:
    """A file with the loaded and verified classes of a broker, for later brokers.

    It reduces the start of a broker from 2.1 s to 1.2 s, and its CPU time from 3.3 s to 2.0 s. The
    first broker that exits cleanly writes the file, which takes two seconds once. A JVM ignores a
    file that does not match, so the file cannot cause errors.
    """

    def __init__(self, cache: Path, java: Path, class_path: Sequence[Path]) -> None:
        # The modification time detects an update of Java at the same path.
        program = java.resolve()
        marks = [str(program), str(program.stat().st_mtime_ns), *map(str, class_path)]
        digest = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
        self._path = cache / f"classes-{digest}.jsa"
        self._is_written = self._path.exists()

    def options(self) -> tuple[str, ...]:
        """Return the JVM options that use the file, or write it to the working directory."""
        # Disable the JVM's log, which would report each excluded class on stdout.
        if self._is_written:
            return (f"-XX:SharedArchiveFile={self._path}", "-Xlog:disable")
        return (f"-XX:ArchiveClassesAtExit={_UNFINISHED}", "-Xlog:disable")

    def keep(self, folder: Path) -> None:
        """Keep the file, if any, that a cleanly exited JVM has written to `folder`."""
        written = folder / _UNFINISHED
        if self._is_written or not written.exists():
            return
        whole = self._path.with_suffix(f".{os.getpid()}")
        # Ignore errors, because a full or read-only cache only makes the next start slower.
        with suppress(OSError):
            shutil.copyfile(written, whole)
            whole.replace(self._path)
        with suppress(OSError):
            whole.unlink()


class BrokerHome:
    """A folder with settings and an initially empty log directory.

    The folder outlives the broker process, so a crashed broker can be restarted with its data. The
    folder does not outlive this process: a small guard process kills the broker and removes the
    folder, even after a SIGKILL of this process. `controllers` contains the controller port of each
    node.
    """

    def __init__(
        self,
        *,
        ports: Ports,
        properties: Mapping[str, str | int | bool],
        security: BrokerSecurity,
        cluster_id: str,
        node_id: int,
        controllers: Mapping[int, int],
    ) -> None:
        self.ports = ports
        # Do this first, so that invalid settings raise an error before anything needs cleanup.
        settings = server_properties(
            ports=ports,
            log_dir="logs",
            properties=properties,
            security=security,
            node_id=node_id,
            controllers=controllers,
        )
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-kafka-"))
        logs = self.folder / "logs"
        logs.mkdir()
        (self.folder / "tmp").mkdir()
        (self.folder / "server.properties").write_text(settings)
        (self.folder / "log4j2.properties").write_text(logging_properties())
        # Kafka's formatting tool only writes these two files, but would need another start of Java
        # (0.6 s). The checkpoint contains the feature levels of a new cluster, and is the same for
        # all clusters of this version; see tests/unit/embedded/test_embedded_settings.py.
        (logs / "meta.properties").write_text(meta_properties(cluster_id, node_id))
        (logs / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint())
        self._guard = _start_guard(self.folder)
        self._classes: ClassArchive | None = None

    def launch(self, java: Path, class_path: Sequence[Path]) -> subprocess.Popen[bytes]:
        """Start the broker's Java process, and register it with the guard."""
        self._classes = ClassArchive(class_path[0].parent, java, class_path)
        options = (*_JVM_OPTIONS, *self._classes.options())
        command = [str(java), *options, "-cp", ":".join(str(jar) for jar in class_path)]
        with self._log.open("ab") as log:
            broker = subprocess.Popen(
                [*command, "kafka.Kafka", "server.properties"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C in the terminal should only reach this process, which stops the broker.
                start_new_session=True,
            )
        if self._guard.stdin is not None:
            self._guard.stdin.write(b"%d\n" % broker.pid)
        return broker

    def keep_class_archive(self) -> None:
        """Keep the class archive after a clean exit.

        A killed broker may leave it incomplete.
        """
        if self._classes is not None:
            self._classes.keep(self.folder)

    def log_tail(self) -> str:
        """Return the end of the broker's log, without stack frames."""
        lines = self._log.read_text(errors="replace").splitlines()
        relevant = [line for line in lines if line.strip() and not line.startswith("\tat ")]
        return "\n".join(relevant[-_LOG_TAIL_LINES:])

    def remove(self) -> None:
        """Remove the folder and end the guard. The broker must have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.kill()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait(_GUARD_TIMEOUT_S)

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"


def bootstrap_checkpoint() -> bytes:
    """Return the `bootstrap.checkpoint` that `kafka-storage.sh format` would write."""
    name = f"kafka-{KAFKA_VERSION}.bootstrap.checkpoint"
    return resources.files("millstream.embedded").joinpath(name).read_bytes()


def _start_guard(folder: Path) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("orphan_guard.py")
    return subprocess.Popen(
        # -I and -S isolate the guard from the user's environment.
        [sys.executable, "-I", "-S", program, str(folder), str(os.getpid())],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
