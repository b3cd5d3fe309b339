"""A patch for a bug of the broker that breaks exactly-once after a crash.

KAFKA-20734 (in 4.3.0 and 4.3.1; apache/kafka pull request 22680): a partition that temporarily has
no leader is treated like a deleted partition. A coordinator that ends a transaction then omits the
markers of that partition, and reports the transaction as complete. Records of an aborted
transaction stay open, and the next transaction of the same producer commits them; in the same way,
records of a committed transaction may be aborted. This affects a single broker that crashes while a
transaction is ending, because its partitions have no leader until it is registered again. The bug
occurred in 1 of 13 crashes with three producers.

The patch restores the former behavior of one method: the leader of an existing partition without a
leader is `Node.noNode()`, and the coordinator retries. The changed class is in a separate jar,
before the other jars on the class path.
"""

from __future__ import annotations

import io
import logging
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from millstream.embedded.jars import KAFKA_VERSION
from millstream.errors import EmbeddedKafkaError

_log = logging.getLogger(__name__)

_JAR: Final = f"kafka-metadata-{KAFKA_VERSION}.jar"
_CLASS: Final = "org/apache/kafka/metadata/KRaftMetadataCache.class"
_NAME: Final = f"kafka-metadata-{KAFKA_VERSION}-KAFKA-20734.jar"
#: The body of the method that looks up the leader's address: `ofNullable(broker).map(address)`.
_CODE: Final = bytes.fromhex("2ab600322cb400bbb60036b801582bba026a0000b600cdb0")
#: Inserted before the return: `ofNullable(….orElse(Node.noNode()))`. All names are already in the
#: constant pool. Starts with a one-byte no-op, because an instruction has to begin where the body
#: ended.
_PATCH: Final = bytes.fromhex("00b8026bb600d2b80158")
_RETURN: Final = b"\xb0"
#: The fields before the code: attribute length, max stack, max locals, code length.
_HEADER_SIZE: Final = 4 + 2 + 2 + 4


def patched_jars(jars: Sequence[Path]) -> list[Path]:
    """Return the class path with the patch first.

    Raises EmbeddedKafkaError if the class to patch differs from the expected class.
    """
    (published,) = [jar for jar in jars if jar.name == _JAR]
    with zipfile.ZipFile(published) as archive:
        content = _jar_of(patched_class(archive.read(_CLASS)))
    patch = published.with_name(_NAME)
    try:
        if not patch.is_file() or patch.read_bytes() != content:
            whole = patch.with_suffix(f".{os.getpid()}")
            whole.write_bytes(content)
            whole.replace(patch)
    except OSError as error:
        _log.warning(
            "The cache folder %s is not writable (%s): a killed broker may leave "
            "transactions open (KAFKA-20734).",
            patch.parent,
            error.strerror,
        )
        return list(jars)
    return [patch, *jars]


def patched_class(published: bytes) -> bytes:
    start = published.find(_CODE)
    if start < 0 or published.count(_CODE) > 1:
        raise EmbeddedKafkaError(f"{_CLASS} of Kafka {KAFKA_VERSION} is not the expected class.")
    header = published[start - _HEADER_SIZE : start]
    attribute = int.from_bytes(header[:4], "big") + len(_PATCH)
    code = int.from_bytes(header[-4:], "big") + len(_PATCH)
    return b"".join(
        (
            published[: start - _HEADER_SIZE],
            attribute.to_bytes(4, "big"),
            header[4:-4],
            code.to_bytes(4, "big"),
            _CODE.removesuffix(_RETURN),
            _PATCH,
            _RETURN,
            published[start + len(_CODE) :],
        )
    )


def _jar_of(content: bytes) -> bytes:
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        # ZipInfo has a constant timestamp: each start of a broker compares the whole jar.
        archive.writestr(zipfile.ZipInfo(_CLASS), content)
    return jar.getvalue()
