"""Jars from Maven, the embedded broker's and others: fetched once, checked at every use.

Spark's Python package brings Ivy, the tool that resolves Maven artifacts, so nothing but Java is
needed to get Apache Kafka's own broker. The jars are kept in a cache folder,
`~/.cache/millstream/kafka-4.3.1` unless the environment variable MILLSTREAM_CACHE names another
parent, and compared with the SHA-256 sums that ship with this package before each start (50 ms).
A cache that is incomplete or damaged is fetched again.

Where the jars come from is Ivy's default (Maven Central), or what is configured: see
`maven_settings`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path

from millstream.clock import Clock, Deadline, SystemClock
from millstream.embedded.fetch_bar import showing
from millstream.embedded.java import Java
from millstream.embedded.maven_settings import jvm_proxy_options, mirror_settings
from millstream.embedded.system_user import home_folder
from millstream.errors import EmbeddedKafkaError

#: The version of Apache Kafka whose broker is run.
KAFKA_VERSION = "4.3.1"

_FETCH_TIMEOUT_MS = 600_000
_FETCH_ATTEMPTS = 3
_LOCK_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are kept in one folder.

    Args:
        folder: where they are kept.
        sums: the SHA-256 of every jar by file name, None where it is not known: then Ivy alone
            compares what it fetches with the sums of where it comes from.
        dependencies: the `ivy.xml` that leads to them.
        what: whose jars they are, for messages.
    """

    folder: Path
    sums: Mapping[str, str | None]
    dependencies: str
    what: str


def broker_jars(
    java: Java, *, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
) -> list[Path]:
    """The broker's class path, in a fixed order; fetches what is missing.

    Processes that ask at the same time wait for the one that fetches.

    Args:
        java: runs Ivy when something has to be fetched.
        environ: where MILLSTREAM_CACHE and MILLSTREAM_IVY_SETTINGS are looked up.
        clock: measures how long is waited.

    Raises:
        EmbeddedKafkaError: the jars could not be fetched, or are not what they should be.
    """
    dependencies = _package_data(f"kafka-{KAFKA_VERSION}.ivy.xml")
    what = f"Apache Kafka {KAFKA_VERSION}"
    jars = JarSet(cache_folder(environ), expected_sums(), dependencies, what)
    return fetched_jars(jars, java, environ, clock)


def fetched_jars(
    jars: JarSet,
    java: Java,
    environ: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
) -> list[Path]:
    """The jars of a cache folder, in a fixed order; fetches what is missing.

    Args:
        jars: which, and where they are kept.
        java: runs Ivy when something has to be fetched.
        environ: where MILLSTREAM_IVY_SETTINGS and proxies are looked up.
        clock: measures how long is waited.

    Raises:
        EmbeddedKafkaError: the jars could not be fetched, or are not what they should be.
    """
    there = [jars.folder / name for name in jars.sums]
    if not damaged_jars(jars.folder, jars.sums):
        return there
    deadline = Deadline(clock or SystemClock(), _FETCH_TIMEOUT_MS)
    with locked(jars.folder, jars.what, deadline):
        if damaged_jars(jars.folder, jars.sums):
            _fetch(jars, java, environ, deadline)
    return there


def cache_folder(environ: Mapping[str, str] = os.environ, what: str = "kafka") -> Path:
    """Where the jars of this Kafka version are kept: the broker's, or others named by `what`."""
    return cache_parent(environ) / f"{what}-{KAFKA_VERSION}"


def cache_parent(environ: Mapping[str, str] = os.environ) -> Path:
    """The parent of all folders of jars: MILLSTREAM_CACHE, or `~/.cache/millstream`.

    A user without any home, as in containers, has one in the folder for temporary files.
    """
    parent = environ.get("MILLSTREAM_CACHE")
    if parent:
        return Path(parent).expanduser().absolute()
    try:
        home = Path.home()
    except RuntimeError:
        home = home_folder()
    return home / ".cache" / "millstream"


def expected_sums() -> dict[str, str]:
    """The SHA-256 of every jar by file name, as shipped with this package."""
    lines = _package_data(f"kafka-{KAFKA_VERSION}.sha256").split("\n")
    pairs = (line.split() for line in lines if line)
    return {name: digest for digest, name in pairs}


def damaged_jars(folder: Path, sums: Mapping[str, str | None]) -> list[str]:
    """The names of the jars that are missing from `folder` or differ from what was expected."""
    return [name for name, digest in sums.items() if _is_damaged(folder / name, digest)]


def _is_damaged(path: Path, digest: str | None) -> bool:
    return not path.is_file() if digest is None else _sum_of(path) != digest


def _sum_of(path: Path) -> str | None:
    try:
        with path.open("rb") as jar:
            return hashlib.file_digest(jar, "sha256").hexdigest()
    except OSError:
        return None


@contextmanager
def locked(folder: Path, what: str, deadline: Deadline) -> Iterator[None]:
    """While nobody else fetches into a cache folder.

    Args:
        folder: which one; its parent is created.
        what: is fetched, for messages.
        deadline: how long is waited for who fetches.

    Raises:
        EmbeddedKafkaError: somebody fetches for too long, or the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise EmbeddedKafkaError(
            f"The cache folder {folder.parent} cannot be written ({error.strerror}): set "
            "MILLSTREAM_CACHE to a folder that can."
        ) from error
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.passed:
                    raise EmbeddedKafkaError(
                        f"Another process has been fetching {what} into {folder} for too "
                        "long: end it, then try again."
                    ) from None
                time.sleep(_LOCK_POLL_S)
        yield


def _fetch(jars: JarSet, java: Java, environ: Mapping[str, str], deadline: Deadline) -> None:
    folder = jars.folder
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
        work = Path(name)
        with showing(work / "cache", len(jars.sums), f"fetching {jars.what}"):
            _run_ivy(work, jars, java, environ, deadline)
        fetched = work / "jars"
        damaged = damaged_jars(fetched, jars.sums)
        if damaged:
            raise EmbeddedKafkaError(
                f"The fetched {', '.join(damaged)} differ from what {jars.what} was published "
                "with, so they are not used: check the Maven mirror in between."
            )
        # Nothing but complete folders ever stands under the final name.
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)


def _run_ivy(
    work: Path,
    jars: JarSet,
    java: Java,
    environ: Mapping[str, str],
    deadline: Deadline,
) -> None:
    ivy_xml = work / "ivy.xml"
    ivy_xml.write_text(jars.dependencies)
    command = [
        str(java.path),
        *jvm_proxy_options(environ),
        *("-cp", str(ivy_jar()), "org.apache.ivy.Main", "-warn"),
        *mirror_settings(work, environ),
        # Ivy's own cache is thrown away too: a damaged one would stay in the way of every retry.
        *("-cache", str(work / "cache"), "-ivy", str(ivy_xml), "-confs", "default"),
        *("-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    said = ""
    for _ in range(_FETCH_ATTEMPTS):
        seconds = deadline.remaining_ms(_FETCH_TIMEOUT_MS) / 1000
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said = f"no end after {_FETCH_TIMEOUT_MS // 60_000} minutes"
            break
        if done.returncode == 0:
            return
        said = _reason_in(done.stdout)
    raise EmbeddedKafkaError(
        f"The jars of {jars.what} could not be fetched: {said}. Without a way to Maven Central, "
        "let MILLSTREAM_IVY_SETTINGS name an ivysettings.xml for your mirror, or copy "
        f"{jars.folder} from a machine that has it."
    )


def _reason_in(ivy_output: str) -> str:
    lines = [line.strip() for line in ivy_output.splitlines() if line.strip()]
    for telling in (r"server access error", r"\[FAILED", r"^:: .*#.*: ", r"exception|error"):
        for line in lines:
            if re.search(telling, line, re.IGNORECASE):
                return line.removeprefix(":: ")
    return lines[-1] if lines else "Ivy said nothing"


def ivy_jar() -> Path:
    """The Ivy that pyspark brings.

    Raises:
        EmbeddedKafkaError: pyspark is not installed, or has none.
    """
    spec = util.find_spec("pyspark")
    if spec is None:
        raise EmbeddedKafkaError(
            "The broker is fetched with what Spark's Python package brings, and that is not "
            "installed here: pip install 'millstream[spark]'"
        )
    for place in spec.submodule_search_locations or []:
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise EmbeddedKafkaError(
        "The installed pyspark has no jars (pyspark-client, perhaps): install the package "
        "`pyspark`, whose Ivy fetches the broker."
    )


def _package_data(name: str) -> str:
    return resources.files("millstream.embedded").joinpath(name).read_text()
