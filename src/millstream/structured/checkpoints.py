"""The checkpoint of a stage's query: whose it is, and putting aside one that is not followed on.

It may be in any file system that Spark knows, so it is looked at through Hadoop's.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Spark's file with the query's id.
_IDENTITY: Final = "metadata"


class Checkpoint:
    """The folder in which Structured Streaming keeps its notes on one query.

    Args:
        session: knows the file systems.
        place: a path or a URL.
    """

    def __init__(self, session: SparkSession, place: str) -> None:
        self.place = place
        jvm: Any = session.sparkContext._jvm
        context: Any = session.sparkContext._jsc
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(place)
        self._files = self._path.getFileSystem(context.hadoopConfiguration())

    @property
    def query_id(self) -> str | None:
        """The id of the query that it belongs to; None if there is none yet."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._path, _IDENTITY)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()
        return str(json.loads(text)["id"])

    def put_aside(self, query_id: str) -> str:
        """Give it another name, so that a query begins anew; which."""
        other = f"{self.place.rstrip('/')}.{query_id}"
        target = self._jvm.org.apache.hadoop.fs.Path(other)
        self._files.delete(target, True)
        self._files.rename(self._path, target)
        return other
