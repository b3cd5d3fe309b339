"""The cache of the broker's jars: fetched once, checked always, never half there.

A small program stands in for Java and its Ivy: it puts the files that a test wants where Ivy would.
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
    """What the fetching program delivers, and how often it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shelf = folder / "shelf"
        self.shelf.mkdir()
        for name, content in CONTENTS.items():
            (self.shelf / name).write_bytes(content)
        self.program = folder / "java"
        self.calls = folder / "calls"
        self.answers(
            f"""
            echo "$@" >> {self.calls}
            while [ "$1" != -retrieve ]; do shift; done
            target=$(dirname "$2"); mkdir -p "$target"; cp {self.shelf}/* "$target"
            """
        )

    def answers(self, script: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{script}\n")
        self.program.chmod(0o755)

    @property
    def java(self) -> Java:
        return Java(self.program, "17")

    @property
    def environ(self) -> dict[str, str]:
        return {"MILLSTREAM_CACHE": str(self.folder / "cache"), "HOME": str(self.folder)}

    @property
    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maven:
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    monkeypatch.setattr(module, "expected_sums", lambda: sums)
    return Maven(tmp_path)


def test_shipped_sums_are_complete() -> None:
    """The list covers the broker and what it needs, each with a full SHA-256."""
    sums = expected_sums()
    assert "kafka_2.13-4.3.1.jar" in sums
    assert "log4j-slf4j-impl-2.25.4.jar" in sums
    assert len(sums) == 46
    assert all(len(bytes.fromhex(digest)) == 32 for digest in sums.values())


def test_fetched_once(maven: Maven) -> None:
    """The second call finds everything in the cache."""
    first = broker_jars(maven.java, environ=maven.environ)
    second = broker_jars(maven.java, environ=maven.environ)
    assert first == second == [cache_folder(maven.environ) / name for name in CONTENTS]
    assert len(maven.asked) == 1


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_cache_is_fetched_again(maven: Maven, damage: str) -> None:
    """A jar of the right size but other bytes, or a deleted one, is never put on the class path."""
    jar = broker_jars(maven.java, environ=maven.environ)[1]
    if damage == "changed":
        jar.write_bytes(bytes(reversed(jar.read_bytes())))
    else:
        jar.unlink()
    assert broker_jars(maven.java, environ=maven.environ)[1].read_bytes() == CONTENTS["two.jar"]
    assert len(maven.asked) == 2


def test_wrong_bytes_are_not_accepted(maven: Maven) -> None:
    """A mirror that delivers something else is an error that names the jar; nothing is kept."""
    (maven.shelf / "two.jar").write_bytes(b"something else")
    with pytest.raises(EmbeddedKafkaError, match=r"fetched two\.jar differ"):
        broker_jars(maven.java, environ=maven.environ)
    cache = Path(maven.environ["MILLSTREAM_CACHE"])
    assert [path.name for path in cache.iterdir()] == ["kafka-4.3.1.lock"]


def test_a_failed_fetch_says_why_and_what_to_do(maven: Maven) -> None:
    """Ivy's own reason is in the message, with the two ways to go on without a network."""
    maven.answers(
        f"echo call >> {maven.calls}; echo ':: problems summary ::'; "
        "echo '  Server access error at url x (java.net.UnknownHostException: x)'; exit 1"
    )
    with pytest.raises(EmbeddedKafkaError, match=r"UnknownHost.*MILLSTREAM_IVY_SETTINGS.*copy"):
        broker_jars(maven.java, environ=maven.environ)
    assert len(maven.asked) == 3


def test_a_passing_failure_is_tried_again(maven: Maven) -> None:
    """One failed download does not fail the fetch."""
    working = maven.program.read_text().removeprefix("#!/bin/sh\n")
    maven.answers(
        f"[ -e {maven.folder}/tried ] || {{ touch {maven.folder}/tried; exit 1; }}\n{working}"
    )
    assert len(broker_jars(maven.java, environ=maven.environ)) == 2


def test_simultaneous_callers_fetch_once(maven: Maven) -> None:
    """Whoever comes while the jars are being fetched waits and takes the result."""
    working = maven.program.read_text().removeprefix("#!/bin/sh\n")
    maven.answers(f"sleep 0.3\n{working}")
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
    assert len(maven.asked) == 1


def test_an_unwritable_cache_is_explained(maven: Maven, tmp_path: Path) -> None:
    """The way out, another folder, is part of the message."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedKafkaError, match="set MILLSTREAM_CACHE"):
        broker_jars(maven.java, environ={"MILLSTREAM_CACHE": str(tmp_path / "file" / "x")})


def test_jars_without_a_known_sum_have_to_be_there(tmp_path: Path) -> None:
    """Those of a version that was not tried: what is missing is fetched, the bytes are taken."""
    (tmp_path / "one.jar").write_bytes(b"whatever")
    assert damaged_jars(tmp_path, {"one.jar": None, "two.jar": None}) == ["two.jar"]


def test_damaged_jars_lists_what_is_wrong(tmp_path: Path) -> None:
    """Missing and changed files are both named, good ones are not."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    sums["three.jar"] = "00" * 32
    (tmp_path / "one.jar").write_bytes(CONTENTS["one.jar"])
    (tmp_path / "two.jar").write_bytes(b"x")
    assert damaged_jars(tmp_path, sums) == ["two.jar", "three.jar"]
