"""Jars from Maven, for the embedded broker and Spark.

Spark's Python package includes Ivy, which resolves Maven artifacts, so only Java is needed to get
Apache Kafka's broker. The jars are downloaded once to a cache folder, and verified against the
SHA-256 checksums in this package before each start (50 ms). A damaged cache is downloaded again.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from millstream.clock import Clock, Deadline, SystemClock
from millstream.embedded.java import Java
from millstream.embedded.system_user import home_folder
from millstream.errors import EmbeddedKafkaError

#: The Apache Kafka version of the broker.
KAFKA_VERSION = "4.3.1"

_FETCH_TIMEOUT_MS = 600_000
_FETCH_ATTEMPTS = 3
_LOCK_POLL_S = 0.1

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.2

# The values of <mirrorOf> that include Maven Central.
_MIRRORS_CENTRAL = frozenset({"*", "central", "external:*"})


@dataclass(frozen=True, slots=True)
class JarSet:
    """A set of jars in one folder."""

    folder: Path
    #: The SHA-256 of every jar by file name, or None if it is unknown. In that case, only Ivy
    #: checks the download, against the checksums of its source.
    sums: Mapping[str, str | None]
    #: The `ivy.xml` with the dependencies.
    dependencies: str
    #: The description of the jars, for messages.
    what: str


def broker_jars(
    java: Java, *, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
) -> list[Path]:
    """Return the broker's class path. Raises the same errors as `fetched_jars`."""
    dependencies = _package_data(f"kafka-{KAFKA_VERSION}.ivy.xml")
    what = f"Apache Kafka {KAFKA_VERSION}"
    jars = JarSet(cache_folder(environ), expected_sums(), dependencies, what)
    return fetched_jars(jars, java, environ, clock)


def fetched_jars(
    jars: JarSet, java: Java, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
) -> list[Path]:
    """Return the jars of a cache folder, in a fixed order. Downloads missing jars.

    Concurrent processes wait for the process that downloads. `environ` may contain
    MILLSTREAM_CACHE, MILLSTREAM_IVY_SETTINGS and proxies.

    Raises:
        EmbeddedKafkaError: the jars could not be downloaded, or do not match their checksums.
    """
    paths = [jars.folder / name for name in jars.sums]
    if not damaged_jars(jars.folder, jars.sums):
        return paths
    deadline = Deadline(clock or SystemClock(), _FETCH_TIMEOUT_MS)
    with locked(jars.folder, jars.what, deadline):
        if damaged_jars(jars.folder, jars.sums):
            _fetch(jars, java, environ, deadline)
    return paths


def cache_folder(environ: Mapping[str, str] = os.environ, what: str = "kafka") -> Path:
    """Return the folder for jars of this Kafka version, by default the broker's."""
    return cache_parent(environ) / f"{what}-{KAFKA_VERSION}"


def cache_parent(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the parent of all jar folders.

    This is MILLSTREAM_CACHE, or `~/.cache/millstream`. For a user without a home, as in containers,
    the parent may be in the folder for temporary files.
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
    """Return the SHA-256 of every jar by file name, as shipped with this package."""
    lines = _package_data(f"kafka-{KAFKA_VERSION}.sha256").split("\n")
    pairs = (line.split() for line in lines if line)
    return {name: digest for digest, name in pairs}


def damaged_jars(folder: Path, sums: Mapping[str, str | None]) -> list[str]:
    """Return the names of jars that are missing or do not match their checksums."""
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
    """Lock a cache folder for downloads, and create its parent.

    Raises EmbeddedKafkaError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise EmbeddedKafkaError(
            f"The cache folder {folder.parent} is not writable ({error.strerror}): set "
            "MILLSTREAM_CACHE to a writable folder."
        ) from error
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.passed:
                    raise EmbeddedKafkaError(
                        f"Another process has been downloading {what} to {folder} for too "
                        "long: end that process and try again."
                    ) from None
                time.sleep(_LOCK_POLL_S)
        yield


def _fetch(jars: JarSet, java: Java, environ: Mapping[str, str], deadline: Deadline) -> None:
    folder = jars.folder
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
        work = Path(name)
        with download_progress(work / "cache", len(jars.sums), f"downloading {jars.what}"):
            _run_ivy(work, jars, java, environ, deadline)
        fetched = work / "jars"
        damaged = damaged_jars(fetched, jars.sums)
        if damaged:
            raise EmbeddedKafkaError(
                f"The downloaded {', '.join(damaged)} do not match the checksums of {jars.what}, "
                "so they are not used. Check the Maven mirror."
            )
        # Rename the folder at the end, so only complete folders have the final name.
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)


def _run_ivy(
    work: Path, jars: JarSet, java: Java, environ: Mapping[str, str], deadline: Deadline
) -> None:
    ivy_xml = work / "ivy.xml"
    ivy_xml.write_text(jars.dependencies)
    command = [
        str(java.path),
        *jvm_proxy_options(environ),
        *("-cp", str(ivy_jar()), "org.apache.ivy.Main", "-warn"),
        *mirror_settings(work, environ),
        # Ivy's cache is also temporary, because a damaged cache would break every retry.
        *("-cache", str(work / "cache"), "-ivy", str(ivy_xml), "-confs", "default"),
        *("-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    reason = ""
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
            reason = f"timeout after {_FETCH_TIMEOUT_MS // 60_000} minutes"
            break
        if done.returncode == 0:
            return
        reason = _reason_in(done.stdout)
    raise EmbeddedKafkaError(
        f"The jars of {jars.what} could not be downloaded: {reason}. Without access to Maven "
        "Central, set MILLSTREAM_IVY_SETTINGS to an ivysettings.xml for your mirror, or copy "
        f"{jars.folder} from a machine that has this folder."
    )


def _reason_in(ivy_output: str) -> str:
    lines = [line.strip() for line in ivy_output.splitlines() if line.strip()]
    for pattern in (r"server access error", r"\[FAILED", r"^:: .*#.*: ", r"exception|error"):
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                return line.removeprefix(":: ")
    return lines[-1] if lines else "Ivy printed no error"


def ivy_jar() -> Path:
    """Return pyspark's Ivy jar, or raise EmbeddedKafkaError."""
    spec = util.find_spec("pyspark")
    if spec is None:
        raise EmbeddedKafkaError(
            "The broker is downloaded with the Ivy of pyspark, which is not installed here: "
            "pip install 'millstream[spark]'"
        )
    for place in spec.submodule_search_locations or []:
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise EmbeddedKafkaError(
        "The installed pyspark has no jars (it may be pyspark-client): install the package "
        "`pyspark`, whose Ivy downloads the broker."
    )


def _package_data(name: str) -> str:
    return resources.files("millstream.embedded").joinpath(name).read_text()


@contextmanager
def download_progress(
    folder: Path, number: int, what: str, file: TextIO | None = None
) -> Iterator[None]:
    """Log a download of jars to `folder`, and show a progress bar on a terminal."""
    target = file or sys.stderr
    logger.info("%s (%s jars)", what, number)
    if not target.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    ended = threading.Event()
    with Progress(*columns, console=Console(file=target), transient=True) as progress:
        bar = progress.add_task(what, total=number)

        def follow() -> None:
            while not ended.wait(_LOOK_S):
                fetched = sum(1 for _ in folder.rglob("*.jar"))
                progress.update(bar, completed=min(fetched, number))

        watcher = threading.Thread(target=follow, name="millstream-fetch-bar", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def mirror_settings(work: Path, environ: Mapping[str, str]) -> list[str]:
    """Return Ivy's arguments for the source of jars.

    May write a settings file to `work`.

    The source is, in this order: the ivysettings.xml in MILLSTREAM_IVY_SETTINGS, which mirrors or
    proxies with a password require; a mirror of Maven Central in `~/.m2/settings.xml`; or Ivy's
    default.
    """
    named = environ.get("MILLSTREAM_IVY_SETTINGS")
    if named:
        settings = Path(named).expanduser()
        if not settings.is_file():
            raise EmbeddedKafkaError(
                f"MILLSTREAM_IVY_SETTINGS names {settings}, which is not a file: correct it or "
                "unset it."
            )
        return ["-settings", str(settings)]
    home = environ.get("HOME")
    url = _mirror_in(Path(home) / ".m2" / "settings.xml") if home else None
    if url is None:
        return []
    settings = work / "ivysettings.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='mirror'/><resolvers>"
        f"<ibiblio name='mirror' m2compatible='true' root={quoteattr(url)}/>"
        "</resolvers></ivysettings>"
    )
    return ["-settings", str(settings)]


def _mirror_in(settings: Path) -> str | None:
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        # There are no Maven settings, or they are invalid, so Maven cannot read them, either.
        return None
    for mirror in root.iterfind(".//{*}mirror"):
        of = (mirror.findtext("{*}mirrorOf") or "").replace(" ", "").split(",")
        url = (mirror.findtext("{*}url") or "").strip()
        blocked = (mirror.findtext("{*}blocked") or "").strip() == "true"
        if url and not blocked and _MIRRORS_CENTRAL.intersection(of) and "!central" not in of:
            return url
    return None


def jvm_proxy_options(environ: Mapping[str, str]) -> list[str]:
    """Return Java's options for HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

    Java ignores these environment variables.
    """
    options: list[str] = []
    for scheme in ("http", "https"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not value:
            continue
        proxy = urlsplit(value if "//" in value else f"//{value}")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    direct = environ.get("no_proxy") or environ.get("NO_PROXY")
    if options and direct:
        hosts = [host.strip() for host in direct.split(",") if host.strip()]
        patterns = [f"*{host}" if host.startswith(".") else host for host in hosts]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return options
