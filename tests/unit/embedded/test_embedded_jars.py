"""The cache of the broker's jars: downloaded once, always verified, never incomplete.

A small program stands in for Java with Ivy: it puts the files of the test into Ivy's target folder.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from millstream.embedded import jars as module
from millstream.embedded.jars import broker_jars, cache_folder, damaged_jars, expected_sums
from millstream.embedded.java import Java
from millstream.errors import EmbeddedKafkaError

CONTENTS = {"one.jar": b"the first", "two.jar": b"the second"}


class Maven:
    """A repository with jars, and a program that retrieves them and records its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "shelf"
        self.repository.mkdir()
        for name, content in CONTENTS.items():
            (self.repository / name).write_bytes(content)
        self.program = folder / "java"
        self.calls = folder / "calls"
        self.set_program(
            f"""
            echo "$@" >> {self.calls}
            while [ "$1" != -retrieve ]; do shift; done
            target=$(dirname "$2"); mkdir -p "$target"; cp {self.repository}/* "$target"
            """
        )

    def set_program(self, script: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{script}\n")
        self.program.chmod(0o755)

    @property
    def java(self) -> Java:
        return Java(self.program, "17")

    @property
    def environ(self) -> dict[str, str]:
        return {"MILLSTREAM_CACHE": str(self.folder / "cache"), "HOME": str(self.folder)}

    @property
    def recorded_calls(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maven:
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    monkeypatch.setattr(module, "expected_sums", lambda: sums)
    return Maven(tmp_path)


def test_the_shipped_checksums_are_complete() -> None:
    """The list contains the broker and its dependencies, each with a full SHA-256."""
    sums = expected_sums()
    assert "kafka_2.13-4.3.1.jar" in sums
    assert "log4j-slf4j-impl-2.25.4.jar" in sums
    assert len(sums) == 46
    assert all(len(bytes.fromhex(digest)) == 32 for digest in sums.values())


def test_jars_are_downloaded_once(maven: Maven) -> None:
    """The second call finds them in the cache."""
    first = broker_jars(maven.java, environ=maven.environ)
    second = broker_jars(maven.java, environ=maven.environ)
    assert first == second == [cache_folder(maven.environ) / name for name in CONTENTS]
    assert len(maven.recorded_calls) == 1


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_jars_are_downloaded_again(maven: Maven, damage: str) -> None:
    """A jar of the right size with other bytes, or a deleted one, never reaches the class path."""
    jar = broker_jars(maven.java, environ=maven.environ)[1]
    if damage == "changed":
        jar.write_bytes(bytes(reversed(jar.read_bytes())))
    else:
        jar.unlink()
    assert broker_jars(maven.java, environ=maven.environ)[1].read_bytes() == CONTENTS["two.jar"]
    assert len(maven.recorded_calls) == 2


def test_unexpected_bytes_are_rejected(maven: Maven) -> None:
    """A mirror that serves something else causes an error that names the jar, and nothing is
    kept."""
    (maven.repository / "two.jar").write_bytes(b"something else")
    with pytest.raises(EmbeddedKafkaError, match=r"downloaded two\.jar do not match the checksums"):
        broker_jars(maven.java, environ=maven.environ)
    cache = Path(maven.environ["MILLSTREAM_CACHE"])
    assert [path.name for path in cache.iterdir()] == ["kafka-4.3.1.lock"]


def test_the_error_of_a_failed_download_contains_the_reason_and_advice(maven: Maven) -> None:
    """Ivy's own reason, and the two ways to continue without a network."""
    maven.set_program(
        f"echo call >> {maven.calls}; echo ':: problems summary ::'; "
        "echo '  Server access error at url x (java.net.UnknownHostException: x)'; exit 1"
    )
    with pytest.raises(EmbeddedKafkaError, match=r"UnknownHost.*MILLSTREAM_IVY_SETTINGS.*copy"):
        broker_jars(maven.java, environ=maven.environ)
    assert len(maven.recorded_calls) == 3


def test_a_transient_failure_is_retried(maven: Maven) -> None:
    working = maven.program.read_text().removeprefix("#!/bin/sh\n")
    maven.set_program(
        f"[ -e {maven.folder}/tried ] || {{ touch {maven.folder}/tried; exit 1; }}\n{working}"
    )
    assert len(broker_jars(maven.java, environ=maven.environ)) == 2


def test_concurrent_callers_download_once(maven: Maven) -> None:
    """A caller during a download waits and uses its result."""
    working = maven.program.read_text().removeprefix("#!/bin/sh\n")
    maven.set_program(f"sleep 0.3\n{working}")
    results: list[list[Path]] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(broker_jars(maven.java, environ=maven.environ))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 4
    assert len(maven.recorded_calls) == 1


def test_the_error_of_an_unwritable_cache_contains_advice(maven: Maven, tmp_path: Path) -> None:
    """The message suggests another folder."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedKafkaError, match="set MILLSTREAM_CACHE"):
        broker_jars(maven.java, environ={"MILLSTREAM_CACHE": str(tmp_path / "file" / "x")})


def test_jars_without_a_known_checksum_must_exist(tmp_path: Path) -> None:
    """For untested versions: missing jars are downloaded, and any bytes are accepted."""
    (tmp_path / "one.jar").write_bytes(b"whatever")
    assert damaged_jars(tmp_path, {"one.jar": None, "two.jar": None}) == ["two.jar"]


def test_damaged_jars_lists_missing_and_changed_jars(tmp_path: Path) -> None:
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    sums["three.jar"] = "00" * 32
    (tmp_path / "one.jar").write_bytes(CONTENTS["one.jar"])
    (tmp_path / "two.jar").write_bytes(b"x")
    assert damaged_jars(tmp_path, sums) == ["two.jar", "three.jar"]
