"""A file of properties: formats, and what is wrong with some."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from millstream.errors import ConfigError
from millstream.parallel import Properties, PropertiesFile

GIVEN = Properties(partition_concurrency=2, commit_interval_ms=5)


def written(folder: Path, name: str, content: str | bytes) -> PropertiesFile:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return PropertiesFile(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.toml", "partition_concurrency = 8"),
        ("p.TOML", "[decaton.partition]\nconcurrency = 8"),
        ("p.toml", "partition.concurrency = 8"),
        ("p.json", '{"decaton.partition.concurrency": 8}'),
        ("p.json", '{"partition_concurrency": "8", "commit_interval_ms": null}'),
        ("p.json", b'\xef\xbb\xbf{"partition_concurrency": 8}'),
    ],
)
def test_what_is_in_the_file_wins(tmp_path: Path, name: str, content: str | bytes) -> None:
    """And what is not, or is null, is as given in code."""
    read = written(tmp_path, name, content).read(GIVEN)
    assert read.as_given() == {"partition_concurrency": 8, "commit_interval_ms": 5}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.toml", "partition_concurrency =", "is broken: "),
        ("p.toml", "commit_interval_ms = 1\ncommit_interval_ms = 2", "is broken: "),
        ("p.json", '{"commit_interval_ms": 1, "commit_interval_ms": 2}', "more than once"),
        ("p.json", '{"partition_concurrency": 8', "is broken: "),
        ("p.json", "", "is broken: "),
        ("p.json", "[" * 100_000, "is broken: "),
        ("p.json", b'{"a": "\xff"}', "is broken: .*utf-8"),
        ("p.json", "[1]", "holds list, but must hold an object"),
        ("p.json", '{"partition_concurrency": 0}', "p.json: partition_concurrency is 0"),
        ("p.toml", "partition_concurency = 8", "Did you mean 'partition_concurrency'"),
        ("p.toml", "#" * (1 << 20) + "#", "larger than 1048576 bytes"),
    ],
)
def test_a_wrong_file_is_an_error(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    """With the name of the file, and what is wrong."""
    with pytest.raises(ConfigError, match=f"{tmp_path}.*{message}"):
        written(tmp_path, name, content).read(GIVEN)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """What the system says goes into the error."""
    folder = tmp_path / "p.toml"
    folder.mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        PropertiesFile(folder).read(GIVEN)


def test_wrong_arguments_are_refused() -> None:
    """An unknown format, and an interval that never lets go."""
    with pytest.raises(ConfigError, match=r"ends in '\.json' or '\.toml'"):
        PropertiesFile("properties")
    with pytest.raises(ConfigError, match="poll_interval"):
        PropertiesFile("p.toml", timedelta(0))
