"""The error for offsets that are gone: it names every partition and survives being pickled."""

from __future__ import annotations

import copy
import pickle

from millstream.errors import OffsetOutOfRangeError
from millstream.kafka.data.consumer import _out_of_range_error
from millstream.record import TopicPartition


def test_every_partition_is_named_and_the_first_is_the_place() -> None:
    """Also after pickling, which errors go through between processes."""
    offsets = {TopicPartition("b", 2): 7, TopicPartition("a", 0): 0}
    error = _out_of_range_error(offsets)
    for told in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert isinstance(told, OffsetOutOfRangeError)
        assert told.offsets == offsets
        assert list(told.offsets) == list(offsets)
        assert (told.topic, told.partition, told.offset) == ("b", 2, 7)
        assert "b-2 at 7, a-0 at 0" in str(told)


def test_the_message_stays_readable() -> None:
    """However many there are; the field has them all."""
    error = _out_of_range_error({TopicPartition("t", number): number for number in range(500)})
    assert len(error.offsets) == 500
    assert "and 488 more" in str(error)
    assert len(str(error)) < 600
