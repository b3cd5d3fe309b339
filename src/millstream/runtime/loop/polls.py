"""Asking for records, beside what is in flight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.clock import Clock
from millstream.kafka.data.record_columns import RecordColumns
from millstream.kafka.protocols import Consumer, Producer
from millstream.record import TopicPartition
from millstream.runtime.loop.rebalances import Rebalances
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.ownership.tasks import Tasks

#: How long records wait to be polled while others are in flight, of which the end wakes the loop.
_LANDING_WAIT_MS: Final = 5
#: How long none are asked for while all tasks have enough. Who does not poll hears of no errors.
_SATED_MS: Final = 50
#: So far apart are polls that find a few records each.
_GATHER_MS: Final = 2
#: What a few are: one or two come so rarely that a step for each is cheap, and with a hundred or
#: more a step costs little for each.
_FEW_AT_A_TIME: Final = range(4, 100)
#: So many records are let go where they would wait for others.
_FEW: Final = 20


class Polls:
    """Polls the consumer, and looks meanwhile after what is in flight and what waits to be sent.

    Args:
        consumer: the main consumer.
        producer: the thread's, which lets records wait for others.
        tasks: which have records in flight, and waiting.
        rebalances: wait for news, and for the ends of calls.
        settings: how many records a poll takes, and how long what is sent may wait for more.
        clock: time.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        tasks: Tasks,
        rebalances: Rebalances,
        settings: ThreadSettings,
        clock: Clock,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._tasks = tasks
        self._rebalances = rebalances
        self._max_records = settings.max_poll_records
        self._clock = clock
        self._polled_ms = 0
        self._linger_ms = int(settings.linger_ms)
        self._let_go_ms = 0
        #: When the next poll may be, if the last one found a few records; else 0.
        self._next_ms = 0

    def poll(self, timeout_ms: int) -> Mapping[TopicPartition, RecordColumns]:
        """Records, if there are any.

        Args:
            timeout_ms: how long to wait for them, or for anything else that the loop has to do.
        """
        running = self._tasks.running
        in_flight = any(task.in_flight for task in running)
        if not (in_flight or any(task.buffered for task in running)):
            if self._next_ms and timeout_ms:
                self._gather(timeout_ms)
            records = self._poll_at_leisure(timeout_ms)
            count = sum(len(columns.values) for columns in records.values())
            are_few = count in _FEW_AT_A_TIME
            self._next_ms = self._clock.monotonic_ms() + _GATHER_MS if are_few else 0
            return records
        # More than may wait would have the partition paused, which throws away what was fetched:
        # `map_async` of 1,000 at a time had 15,500 tasks/s, and has 85,000; of functions that wait
        # for nothing, so that all have ended when records are polled, 18,600 and 187,000.
        room = min(self._tasks.input_room, self._max_records)
        now_ms = self._clock.monotonic_ms()
        if 2 * room >= self._max_records or now_ms - self._polled_ms >= _SATED_MS:
            self._polled_ms = now_ms
            records = self._consumer.poll_columns(max(1, room), 0 if in_flight else timeout_ms)
            if records or not in_flight:
                return records
        # The end of a call does not end the wait for records, but that for news.
        if timeout_ms:
            most_ms = _LANDING_WAIT_MS if in_flight else _SATED_MS
            self._rebalances.has_news(min(timeout_ms, most_ms))
        return {}

    def _gather(self, most_ms: int) -> None:
        """Let records come together that would come a few at a time, since each step has its price.

        With 10,000 records/s in four partitions, which librdkafka hands over one after the other,
        the process took 46 % of a processor instead of 68.
        """
        left_ms = self._next_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._rebalances.has_news(min(left_ms, most_ms))

    def _poll_at_leisure(self, timeout_ms: int) -> Mapping[TopicPartition, RecordColumns]:
        """Records, with nothing to do without them: what was sent before waits in vain for others
        that could go with it, and is let go, if it is little.

        Kafka Streams' producer sends what is there for a broker when the first of it has waited for
        `linger.ms`; librdkafka has the records of each partition wait as long, and the first after
        a pause, too. With 1,000 records/s in four partitions and 5 ms half of them came after 3 ms
        instead of 6 to 8.
        """
        consumer, producer = self._consumer, self._producer
        if not (timeout_ms and self._linger_ms and producer.held_back):
            return consumer.poll_columns(self._max_records, timeout_ms)
        now_ms = self._clock.monotonic_ms()
        due_ms = self._let_go_ms + self._linger_ms - now_ms
        if due_ms > 0:
            return consumer.poll_columns(self._max_records, min(timeout_ms, due_ms))
        self._let_go_ms = now_ms
        waiting, producer.held_back = producer.held_back, 0
        # Many have come in `linger.ms`: the next ones do not let them wait for long, and the thread
        # has no time to lose.
        if waiting > _FEW:
            return consumer.poll_columns(self._max_records, timeout_ms)
        records = consumer.poll_columns(self._max_records, 0)
        if not records:
            producer.send_at_once()
        return records
