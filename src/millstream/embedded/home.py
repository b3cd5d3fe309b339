"""Where one embedded broker lives: its folder, its Java process, and the guard over both."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from millstream.embedded.class_archive import ClassArchive
from millstream.embedded.jars import KAFKA_VERSION
from millstream.embedded.security import BrokerSecurity
from millstream.embedded.settings import (
    Ports,
    logging_properties,
    meta_properties,
    server_properties,
)

_JVM_OPTIONS: tuple[str, ...] = (
    *("-Xms128m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
    *("-Djava.awt.headless=true", "-Dlog4j2.configurationFile=log4j2.properties"),
    # What the JVM and the compression libraries unpack goes away with the folder.
    *("-Djava.io.tmpdir=tmp", "-XX:ErrorFile=hs_err.log"),
)
_GUARD_TIMEOUT_S = 5
_LOG_TAIL_LINES = 12


class BrokerHome:
    """A folder with settings and a formatted, empty log directory, removed when this process ends.

    The folder outlives its broker's process, so that a crashed broker can be started again on its
    data; it does not outlive this process: a second, tiny process watches, kills the broker and
    removes the folder even after a SIGKILL of this one.

    Args:
        ports: where the broker listens.
        properties: the user's broker settings.
        security: of the listener for clients.
        cluster_id: the id of the cluster that the broker belongs to.
        node_id: the broker's id.
        controllers: the controller port of each node of the cluster.
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
        # Raises on settings that are refused, before anything exists that would need cleaning.
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
        # These two files are all that Kafka's own formatting tool writes, which would cost another
        # start of Java (0.6 s). The checkpoint holds the feature levels of a new cluster and
        # is the same for all of this version; see tests/unit/embedded/test_embedded_settings.py.
        (logs / "meta.properties").write_text(meta_properties(cluster_id, node_id))
        (logs / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint())
        self._guard = _start_guard(self.folder)
        self._classes: ClassArchive | None = None

    def launch(self, java: Path, class_path: Sequence[Path]) -> subprocess.Popen[bytes]:
        """Start the broker's Java process in the background and tell the guard of it."""
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
                # A Ctrl-C in the terminal is for this process, which then stops the broker.
                start_new_session=True,
            )
        if self._guard.stdin is not None:
            self._guard.stdin.write(b"%d\n" % broker.pid)
        return broker

    def ended_by_itself(self) -> None:
        """Keep what the broker leaves for the next ones; one that was killed may have left half."""
        if self._classes is not None:
            self._classes.keep(self.folder)

    def last_words(self) -> str:
        """The end of the broker's log, without the frames of its stack traces."""
        lines = self._log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if line.strip() and not line.startswith("\tat ")]
        return "\n".join(telling[-_LOG_TAIL_LINES:])

    def remove(self) -> None:
        """Remove the folder and end the guard. The broker must have ended before."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.kill()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait(_GUARD_TIMEOUT_S)

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"


def bootstrap_checkpoint() -> bytes:
    """What `kafka-storage.sh format` of this version writes as `bootstrap.checkpoint`."""
    name = f"kafka-{KAFKA_VERSION}.bootstrap.checkpoint"
    return resources.files("millstream.embedded").joinpath(name).read_bytes()


def _start_guard(folder: Path) -> subprocess.Popen[bytes]:
    program = Path(__file__).with_name("guard.py")
    return subprocess.Popen(
        # -I and -S: nothing of the user's environment may delay or break it.
        [sys.executable, "-I", "-S", program, str(folder), str(os.getpid())],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
