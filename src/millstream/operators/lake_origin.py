"""Where a record on its way to the lake came from, as a header."""

from __future__ import annotations

from typing import Any, Final

from millstream.processor.processor import FixedKeyProcessor
from millstream.record import FixedKeyRecord

#: The header: `<partition> <offset> <topic>` of the record that was read.
ORIGIN_HEADER: Final = "__millstream_origin"


class NoteOrigin(FixedKeyProcessor[Any, Any, Any]):
    """Adds the header. A punctuator's record comes from nowhere and gets none."""

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        """Forward the record with one header more."""
        place = self.context.record_metadata()
        if place is not None and place.topic is not None:
            told = f"{place.partition} {place.offset} {place.topic}".encode()
            record = record.with_headers((*record.headers, (ORIGIN_HEADER, told)))
        self.context.forward(record)
