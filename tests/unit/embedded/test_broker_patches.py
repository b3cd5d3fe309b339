"""The patched class of the broker.

Its effect is tested with a broker in `tests/integration/embedded`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from millstream.embedded.broker_patches import patched_class, patched_jars
from millstream.errors import EmbeddedKafkaError

#: A compiled method: 24 bytes of code, without exceptions and attributes.
BODY = "2ab600322cb400bbb60036b801582bba026a0000b600cdb0"
METHOD = bytes.fromhex(f"02ea 00000024 0002 0003 00000018 {BODY} 0000 0000")
CLASS = "org/apache/kafka/metadata/KRaftMetadataCache.class"


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """A class path that contains the method."""
    jars = [tmp_path / "a.jar", tmp_path / "kafka-metadata-4.3.1.jar"]
    for jar in jars:
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr(CLASS, b"before" + METHOD + b"after")
    return jars


def test_only_the_body_and_its_lengths_change() -> None:
    longer = bytes.fromhex(
        f"02ea 0000002e 0002 0003 00000022 {BODY[:-2]} 00b8026bb600d2b80158 b0 0000 0000"
    )
    assert patched_class(b"before" + METHOD + b"after") == b"before" + longer + b"after"


@pytest.mark.parametrize("published", [b"another class", METHOD + METHOD])
def test_another_class_is_not_patched(published: bytes) -> None:
    with pytest.raises(EmbeddedKafkaError, match="not the expected class"):
        patched_class(published)


def test_the_patched_jar_comes_first_and_is_written_once(jars: list[Path]) -> None:
    own, *others = patched_jars(jars)
    assert others == jars
    with zipfile.ZipFile(own) as archive:
        assert archive.namelist() == [CLASS]
        assert archive.read(CLASS) == patched_class(b"before" + METHOD + b"after")
    written_ns = own.stat().st_mtime_ns
    # A JVM rejects a class archive that is older than a jar.
    assert patched_jars(jars)[0].stat().st_mtime_ns == written_ns
    own.write_bytes(b"damaged")
    assert patched_jars(jars)[0].read_bytes() != b"damaged"


def test_an_unwritable_folder_is_logged(jars: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    (jars[0].parent / "kafka-metadata-4.3.1-KAFKA-20734.jar").mkdir()
    assert patched_jars(jars) == jars
    assert "is not writable" in caplog.text
