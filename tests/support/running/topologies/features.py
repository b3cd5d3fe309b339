"""Many features of the DSL in one topology, its random input, and the test driver's output for
it."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple

from millstream import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Record,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.kafka.partitioner import partition_for
from millstream.record import TopicPartition
from millstream.serdes import BYTES, LONG, STRING, Serde
from millstream.testing import TopologyTestDriver
from support.broker.topics import InputRecord, TopicRecord, keyed

SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)

#: The input topics with their partition counts. Two differ from all others: the right side of the
#: foreign-key joins, and a stream whose keys are replaced anyway.
INPUTS: Final = {
    "orders": 4,
    "customers": 3,
    "shipping": 4,
    "clicks": 4,
    "views": 4,
    "profiles": 4,
    "rates": 4,
    "sales": 3,
}

#: Settings that make searches for closed windows independent of the wall clock.
EAGER: Final = {
    "__emit.interval.ms.kstreams.windowed.aggregation__": 0,
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__": 0,
}


class Output(NamedTuple):
    """The expected properties of an output topic.

    Args:
        crosses: whether its records come from several input partitions, through internal topics.
        key_tail: the number of trailing bytes of its keys that do not affect the partition.
        compared: what is deterministic: the last value of each key; all records of a key in order;
            or all records, without the order of those from several input partitions.
    """

    partitions: int = 4
    crosses: bool = False
    key_tail: int = 0
    compared: Literal["last", "in order", "in any order"] = "last"

    def partition_of(self, key: bytes | None) -> int | None:
        """The partition that Java's producer chooses for a record with this key, if any."""
        if key is None:
            return None
        return partition_for(key[: len(key) - self.key_tail], self.partitions)


_TIME, _SESSION = 8, 16
OUTPUTS: Final = {
    "fk-inner": Output(crosses=True),
    "fk-left": Output(5, crosses=True),
    "order-state": Output(),
    "spent": Output(crosses=True),
    "profile-sales": Output(crosses=True),
    "per-page": Output(3, crosses=True, key_tail=_TIME),
    "page-totals": Output(crosses=True),
    "with-profile": Output(compared="in order"),
    "rated": Output(compared="in order"),
    "rated-late": Output(compared="in order"),
    "merged": Output(compared="in order"),
    "click-windows": Output(5, key_tail=_TIME, compared="in order"),
    "view-windows": Output(key_tail=_TIME, compared="in order"),
    "visits": Output(key_tail=_SESSION),
    "sliding": Output(key_tail=_TIME),
    "seen": Output(compared="in order"),
    "activity": Output(),
}


def topology(prefix: str) -> Topology:
    """All the features; topic names begin with `prefix-`."""
    return _Features(prefix).build()


class _Features:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._builder = StreamsBuilder()

    def build(self) -> Topology:
        self._tables()
        clicks, views = self._stream("clicks"), self._stream("views")
        profiles = self._table("profiles")
        self._stream_table_joins(clicks, profiles)
        self._windows(clicks, views)
        self._other_keys(clicks, profiles)
        return self._builder.build()

    def _tables(self) -> None:
        orders, customers = self._table("orders"), self._table("customers")
        shipping = self._table("shipping")
        self._write(
            orders.join(customers, _both, foreign_key=_customer, name="fk-inner").to_stream(),
            "fk-inner",
        )
        left = orders.left_join(
            customers,
            _both,
            foreign_key=_customer,
            name="fk-left",
            store=Materialized("fk-left", value=STRING),
        )
        self._write(left.to_stream(), "fk-left")
        self._write(orders.outer_join(shipping, _both).to_stream(), "order-state")
        spent = orders.group_by(_customer_and_amount, key=STRING, value=LONG, name="spent").reduce(
            lambda total, amount: total + amount,
            lambda total, amount: total - amount,
            store="spent",
        )
        self._write(spent.to_stream(), "spent", LONG)

    def _stream_table_joins(self, clicks: KStream[str, str], profiles: KTable[str, str]) -> None:
        rates = self._table(
            "rates", Materialized("rates", kind="versioned", history_retention=HOUR)
        )
        self._write(clicks.left_join(profiles, _both), "with-profile")
        self._write(clicks.join(rates, _both), "rated")
        graced = clicks.join(rates, _both, grace=10 * SECOND, name="patient")
        self._write(graced, "rated-late")

    def _windows(self, clicks: KStream[str, str], views: KStream[str, str]) -> None:
        tumbling = TimeWindows(10 * SECOND, grace=20 * SECOND)
        clicked, viewed = clicks.group_by_key(), views.group_by_key()
        self._write(
            clicked.windowed_by(tumbling)
            .count(store="click-windows")
            .suppress(Suppressed.until_window_closes(BufferConfig.unbounded(), name="held"))
            .to_stream(),
            "click-windows",
            LONG,
        )
        self._write(
            viewed.windowed_by(tumbling)
            .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
            .count(store=Materialized("view-windows", retention=3 * HOUR))
            .to_stream(),
            "view-windows",
            LONG,
        )
        sessions = SessionWindows(4 * SECOND, grace=20 * SECOND)
        self._write(
            viewed.windowed_by(sessions).reduce(_joined, store="visits").to_stream(), "visits"
        )
        sliding = SlidingWindows(5 * SECOND, grace=20 * SECOND)
        self._write(viewed.windowed_by(sliding).count(store="sliding").to_stream(), "sliding", LONG)
        near = JoinWindows(3 * SECOND, grace=20 * SECOND)
        self._write(clicks.left_join(views, _both, near, store_name="seen"), "seen")
        activity = (
            clicked.cogroup(lambda user, click, points: points + 10)
            .cogroup(viewed, lambda user, view, points: points + 1)
            .aggregate(int, store=Materialized("activity", value=LONG))
        )
        self._write(activity.to_stream(), "activity", LONG)
        self._write(clicks.merge(views), "merged")

    def _other_keys(self, clicks: KStream[str, str], profiles: KTable[str, str]) -> None:
        latest = (
            self._stream("sales")
            .select_key(lambda key, value: key.removeprefix("sale-"))
            .to_table(key=STRING, name="by-user", store="latest-sale")
        )
        self._write(profiles.left_join(latest, _both).to_stream(), "profile-sales")
        pages = (
            clicks.select_key(lambda user, page: page)
            .repartition(key=STRING, value=STRING, partitions=6, name="pages")
            .group_by_key()
        )
        hopping = TimeWindows(20 * SECOND, advance=10 * SECOND, grace=2 * HOUR)
        self._write(
            pages.windowed_by(hopping).count(store="per-page").to_stream(), "per-page", LONG
        )
        totals = pages.count(store=Materialized("page-totals", kind="in_memory"))
        self._write(totals.to_stream(), "page-totals", LONG)

    def _stream(self, name: str) -> KStream[str, str]:
        return self._builder.stream(f"{self._prefix}-{name}", key=STRING, value=STRING)

    def _table(self, name: str, store: Any = None) -> KTable[str, str]:
        topic = f"{self._prefix}-{name}"
        return self._builder.table(topic, key=STRING, value=STRING, store=store or name)

    def _write(self, stream: KStream[Any, Any], name: str, value: Serde[Any] = STRING) -> None:
        # Windowed keys have their own serde.
        key = None if OUTPUTS[name].key_tail else STRING
        stream.to(f"{self._prefix}-{name}", key=key, value=value)


def _both(one: Any, other: Any) -> str:
    return f"{one} & {other}"


def _joined(one: str, other: str) -> str:
    return f"{one},{other}"


def _customer(order: str) -> str:
    return order.split()[0]


def _customer_and_amount(order: str, value: str) -> tuple[str, int]:
    customer, amount = value.split()
    return customer, int(amount)


# --- input ---------------------------------------------------------------------------------------

_USERS = [f"u{number}" for number in range(24)]
_ORDERS = [f"o{number}" for number in range(60)]
_CUSTOMERS = [f"c{number}" for number in range(15)]
#: The maximum lateness of records of streams and versioned tables; less than any grace period.
_LATE_MS = 4_000


def records(prefix: str, seed: int, start_ms: int, span_ms: int, count: int) -> list[InputRecord]:
    """Random records for all input topics, about `count` for each, in the order of writing."""
    draw = random.Random(seed)
    times = iter(draw.sample(range(_LATE_MS, span_ms), len(INPUTS) * count))
    written: list[tuple[int, InputRecord]] = []
    for name in INPUTS:
        for number in range(count):
            arrival = next(times)
            key, value = _record(draw, name, f"{seed}.{number}")
            late = draw.random() < 0.2 and name in ("clicks", "views", "rates")
            time = arrival - draw.randrange(_LATE_MS) if late else arrival
            written.append((arrival, _sent(prefix, name, key, value, start_ms + time)))
    return [record for _, record in sorted(written, key=lambda pair: pair[0])]


def last_records(prefix: str, time_ms: int) -> list[InputRecord]:
    """A click and a view for each partition, late enough to close all earlier windows."""
    return [
        _sent(prefix, name, _key_in(partition), "end", time_ms + 2 * partition + place)
        for place, name in enumerate(("clicks", "views"))
        for partition in range(INPUTS[name])
    ]


def _record(draw: random.Random, name: str, tag: str) -> tuple[str, str | None]:
    gone = draw.random() < 0.15
    if name == "orders":
        order = f"{draw.choice(_CUSTOMERS)} {draw.randrange(100)}"
        return draw.choice(_ORDERS), None if gone else order
    if name == "shipping":
        return draw.choice(_ORDERS), None if gone else f"shipped {tag}"
    if name == "customers":
        return draw.choice(_CUSTOMERS), None if gone else f"name {tag}"
    if name == "sales":
        return f"sale-{draw.choice(_USERS)}", f"sale {tag}"
    if name in ("clicks", "views"):
        return draw.choice(_USERS), f"page{draw.randrange(12)}" if name == "clicks" else f"v{tag}"
    return draw.choice(_USERS), None if gone else f"{name} {tag}"


def _sent(prefix: str, name: str, key: str, value: str | None, time: int) -> InputRecord:
    return keyed(f"{prefix}-{name}", INPUTS[name], key, value, time)


def _key_in(partition: int) -> str:
    keys = (f"end{number}" for number in range(1_000))
    return next(key for key in keys if partition_for(key.encode(), 4) == partition)


# --- expected output ------------------------------------------------------------------------------


def expected(
    topology: Topology, outputs: Mapping[str, Output], prefix: str, sent: Iterable[InputRecord]
) -> dict[str, list[TopicRecord]]:
    """The test driver's output for each topic, by names without `prefix-`.

    Topologies without internal topics are run for each input partition separately, with the records
    in the order in which a task processes them. Others are run once with all records, in timestamp
    order. The partitions are those that Java's producer would choose.

    Args:
        sent: the records of each input partition in order.
    """
    queues: dict[TopicPartition, list[InputRecord]] = defaultdict(list)
    for record in sent:
        queues[TopicPartition(record.topic, record.partition)].append(record)
    crossing = {name: output for name, output in outputs.items() if output.crosses}
    found = dict(_driven(topology, crossing, prefix, queues.values()))
    local = {name: output for name, output in outputs.items() if not output.crosses}
    found |= {name: [] for name in local}
    for number in range(max(place.partition for place in queues) + 1):
        mine = [queue for place, queue in queues.items() if place.partition == number]
        for name, records in _driven(topology, local, prefix, mine):
            found[name] += records
    return found


def _driven(
    topology: Topology,
    outputs: Mapping[str, Output],
    prefix: str,
    queues: Iterable[list[InputRecord]],
) -> Iterator[tuple[str, list[TopicRecord]]]:
    config = StreamsConfig(
        application_id=prefix, bootstrap_servers="unused:1", default_dsl_store="in_memory"
    )
    # In a task's order: the earliest record among the heads of the queues.
    sent = list(heapq.merge(*queues, key=lambda record: record.timestamp))
    with TopologyTestDriver(topology, config, initial_wall_clock_ms=0) as driver:
        inputs = {
            topic: driver.create_input_topic(topic, key=STRING, value=STRING)
            for topic in {record.topic for record in sent}
        }
        for record in sent:
            inputs[record.topic].pipe_input(record.key, record.value, record.timestamp)
        for name, known in outputs.items():
            output = driver.create_output_topic(f"{prefix}-{name}", key=BYTES, value=BYTES)
            yield name, [_placed(known, each) for each in output.read_records()]


def _placed(output: Output, record: Record[bytes, bytes]) -> TopicRecord:
    return TopicRecord(
        output.partition_of(record.key) or 0, record.key, record.value, record.timestamp
    )
