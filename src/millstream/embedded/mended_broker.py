"""A defect of the broker that breaks exactly-once when it dies, mended until Kafka does so.

KAFKA-20734 (in 4.3.0 and 4.3.1; apache/kafka pull request 22680): a partition that has no leader
for the moment looks like one that was deleted. A coordinator that is to end transactions then
leaves the markers of that partition out, and says that the transaction is complete. What was
aborted stays open and is committed by the next transaction of the same producer, or the other way
round. A single broker that dies meets this whenever a transaction was just ending: it finds its own
partitions without a leader until it is registered anew. 1 of 13 deaths under three producers.

So one method gets back what it answered before: that the leader of a partition which exists is
nobody, and the coordinator tries again. The changed class stands in a jar of its own, in front of
the others.
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
#: The body of the method that looks the leader's address up: `ofNullable(broker).map(address)`.
_CODE: Final = bytes.fromhex("2ab600322cb400bbb60036b801582bba026a0000b600cdb0")
#: Before it returns: `ofNullable(….orElse(Node.noNode()))`. All names are in the class already. In
#: front nothing for one byte: where the body ended, an instruction has to begin.
_MORE: Final = bytes.fromhex("00b8026bb600d2b80158")
_RETURN: Final = b"\xb0"
#: Of the attribute that holds a body: how long it is, the stack, the variables, how long the code.
_BEFORE: Final = 4 + 2 + 2 + 4


def mended(jars: Sequence[Path]) -> list[Path]:
    """The broker's class path with the mend in front.

    Args:
        jars: as they were published.

    Raises:
        EmbeddedKafkaError: the class is not the one that is known.
    """
    (published,) = [jar for jar in jars if jar.name == _JAR]
    with zipfile.ZipFile(published) as archive:
        content = _jar_of(mended_class(archive.read(_CLASS)))
    own = published.with_name(_NAME)
    try:
        if not own.is_file() or own.read_bytes() != content:
            whole = own.with_suffix(f".{os.getpid()}")
            whole.write_bytes(content)
            whole.replace(own)
    except OSError as error:
        _log.warning(
            "The cache folder %s cannot be written (%s): a broker that is killed may leave "
            "transactions open (KAFKA-20734).",
            own.parent,
            error.strerror,
        )
        return list(jars)
    return [own, *jars]


def mended_class(published: bytes) -> bytes:
    """The class with the longer body.

    Raises:
        EmbeddedKafkaError: it is not the one that is known.
    """
    start = published.find(_CODE)
    if start < 0 or published.count(_CODE) > 1:
        raise EmbeddedKafkaError(f"{_CLASS} of Kafka {KAFKA_VERSION} is not the one that is known.")
    sizes = published[start - _BEFORE : start]
    attribute = int.from_bytes(sizes[:4], "big") + len(_MORE)
    code = int.from_bytes(sizes[-4:], "big") + len(_MORE)
    return b"".join(
        (
            published[: start - _BEFORE],
            attribute.to_bytes(4, "big"),
            sizes[4:-4],
            code.to_bytes(4, "big"),
            _CODE.removesuffix(_RETURN),
            _MORE,
            _RETURN,
            published[start + len(_CODE) :],
        )
    )


def _jar_of(content: bytes) -> bytes:
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        # With the same time always: whoever starts a broker compares the whole jar.
        archive.writestr(zipfile.ZipInfo(_CLASS), content)
    return jar.getvalue()
