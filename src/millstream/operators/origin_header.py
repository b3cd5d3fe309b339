"""A header with the origin of a record that is written to the lake."""

from __future__ import annotations

from typing import Any, Final

from millstream.processor.processor import FixedKeyProcessor
from millstream.record import FixedKeyRecord

#: The header's value is `<partition> <offset> <topic>` of the input record.
ORIGIN_HEADER: Final = "__millstream_origin"


class AddOriginHeader(FixedKeyProcessor[Any, Any, Any]):
    """Adds the origin header. Records of punctuators have no origin and get none."""

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        place = self.context.record_metadata()
        if place is not None and place.topic is not None:
            value = f"{place.partition} {place.offset} {place.topic}".encode()
            record = record.with_headers((*record.headers, (ORIGIN_HEADER, value)))
        self.context.forward(record)
