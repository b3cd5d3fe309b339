"""The one class of the broker that is changed.

That it does what it should is shown with a broker, in `tests/integration/embedded`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from millstream.embedded.mended_broker import mended, mended_class
from millstream.errors import EmbeddedKafkaError

#: A method as it was compiled: 24 bytes of code, then no exceptions and no attributes.
BODY = "2ab600322cb400bbb60036b801582bba026a0000b600cdb0"
METHOD = bytes.fromhex(f"02ea 00000024 0002 0003 00000018 {BODY} 0000 0000")
CLASS = "org/apache/kafka/metadata/KRaftMetadataCache.class"


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """A class path with that method in it."""
    jars = [tmp_path / "a.jar", tmp_path / "kafka-metadata-4.3.1.jar"]
    for jar in jars:
        with zipfile.ZipFile(jar, "w") as archive:
            archive.writestr(CLASS, b"before" + METHOD + b"after")
    return jars


def test_only_the_body_and_its_lengths_change() -> None:
    longer = bytes.fromhex(
        f"02ea 0000002e 0002 0003 00000022 {BODY[:-2]} 00b8026bb600d2b80158 b0 0000 0000"
    )
    assert mended_class(b"before" + METHOD + b"after") == b"before" + longer + b"after"


@pytest.mark.parametrize("published", [b"another class", METHOD + METHOD])
def test_another_class_is_left_alone(published: bytes) -> None:
    with pytest.raises(EmbeddedKafkaError, match="not the one that is known"):
        mended_class(published)


def test_the_jar_comes_first_and_is_written_once(jars: list[Path]) -> None:
    own, *others = mended(jars)
    assert others == jars
    with zipfile.ZipFile(own) as archive:
        assert archive.namelist() == [CLASS]
        assert archive.read(CLASS) == mended_class(b"before" + METHOD + b"after")
    written_ns = own.stat().st_mtime_ns
    # A JVM takes no archive of classes that is older than a jar.
    assert mended(jars)[0].stat().st_mtime_ns == written_ns
    own.write_bytes(b"damaged")
    assert mended(jars)[0].read_bytes() != b"damaged"


def test_a_folder_that_cannot_be_written_is_told(
    jars: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    (jars[0].parent / "kafka-metadata-4.3.1-KAFKA-20734.jar").mkdir()
    assert mended(jars) == jars
    assert "cannot be written" in caplog.text
