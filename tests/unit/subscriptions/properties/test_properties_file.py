"""Properties files: formats and errors."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from millstream.errors import ConfigError
from millstream.parallel import Properties, PropertiesFile

IN_CODE = Properties(partition_concurrency=2, commit_interval_ms=5)


def properties_file(folder: Path, name: str, content: str | bytes) -> PropertiesFile:
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
def test_file_takes_precedence(tmp_path: Path, name: str, content: str | bytes) -> None:
    """Properties that are not in the file, or are null, have the values given in code."""
    read = properties_file(tmp_path, name, content).read(IN_CODE)
    assert read.as_given() == {"partition_concurrency": 8, "commit_interval_ms": 5}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.toml", "partition_concurrency =", "cannot be parsed: "),
        ("p.toml", "commit_interval_ms = 1\ncommit_interval_ms = 2", "cannot be parsed: "),
        ("p.json", '{"commit_interval_ms": 1, "commit_interval_ms": 2}', "more than once"),
        ("p.json", '{"partition_concurrency": 8', "cannot be parsed: "),
        ("p.json", "", "cannot be parsed: "),
        ("p.json", "[" * 100_000, "cannot be parsed: "),
        ("p.json", b'{"a": "\xff"}', "cannot be parsed: .*utf-8"),
        ("p.json", "[1]", "contains a value of type list, but must contain an object"),
        ("p.json", '{"partition_concurrency": 0}', "p.json: partition_concurrency is 0"),
        ("p.toml", "partition_concurency = 8", "Did you mean 'partition_concurrency'"),
        ("p.toml", "#" * (1 << 20) + "#", "larger than 1048576 bytes"),
    ],
)
def test_invalid_file_is_an_error(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    """The error contains the name of the file and the problem."""
    with pytest.raises(ConfigError, match=f"{tmp_path}.*{message}"):
        properties_file(tmp_path, name, content).read(IN_CODE)


def test_folder_is_no_file(tmp_path: Path) -> None:
    """The error contains the message of the operating system."""
    folder = tmp_path / "p.toml"
    folder.mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        PropertiesFile(folder).read(IN_CODE)


def test_invalid_arguments_are_rejected() -> None:
    """An unknown format, and an interval of zero."""
    with pytest.raises(ConfigError, match=r"ends in '\.json' or '\.toml'"):
        PropertiesFile("properties")
    with pytest.raises(ConfigError, match="poll_interval"):
        PropertiesFile("p.toml", timedelta(0))
