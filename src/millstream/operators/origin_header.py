"""A header with the origin of a record that is written to the lake."""

from __future__ import annotations

from typing import Any, Final

from millstream.processor.processor import FixedKeyProcessor
from millstream.record import FixedKeyRecord

#: The header's value is `<partition> <offset> <topic>` of the input record.
ORIGIN_HEADER: Final = "__millstream_origin"


class AddOriginHeader(FixedKeyProcessor[Any, Any, Any]):
    """Adds the origin header, except to records of punctuators, which have no origin."""

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        origin = self.context.record_metadata()
        if origin is not None and origin.topic is not None:
            value = f"{origin.partition} {origin.offset} {origin.topic}".encode()
            record = record.with_headers((*record.headers, (ORIGIN_HEADER, value)))
        self.context.forward(record)
