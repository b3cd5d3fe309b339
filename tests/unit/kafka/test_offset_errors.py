"""The error for deleted offsets: it lists every partition and can be pickled."""

from __future__ import annotations

import copy
import pickle

from millstream.errors import OffsetOutOfRangeError
from millstream.kafka.clients.record_consumer import _out_of_range_error
from millstream.record import TopicPartition


def test_the_error_lists_all_partitions() -> None:
    """`topic` and `partition` are those of the first one. Errors are pickled between processes."""
    offsets = {TopicPartition("b", 2): 7, TopicPartition("a", 0): 0}
    error = _out_of_range_error(offsets)
    for copied in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert isinstance(copied, OffsetOutOfRangeError)
        assert copied.offsets == offsets
        assert list(copied.offsets) == list(offsets)
        assert (copied.topic, copied.partition, copied.offset) == ("b", 2, 7)
        assert "b-2 at 7, a-0 at 0" in str(copied)


def test_the_message_stays_readable() -> None:
    """The message is limited; the attribute has all partitions."""
    error = _out_of_range_error({TopicPartition("t", number): number for number in range(500)})
    assert len(error.offsets) == 500
    assert "and 488 more" in str(error)
    assert len(str(error)) < 600
