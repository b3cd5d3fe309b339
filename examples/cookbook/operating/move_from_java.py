"""From Java, without a stop: the same application in two languages.

Kafka Streams and Millstream can be one application: same id, same topology, instances of both in
one group. So move as you upgrade: write the topology again, compare the descriptions, start
instances in Python, stop those in Java. The description of this topology is what
`topology.describe()` prints in Java for its twin; a test that compares them keeps the two in step
until the last Java instance is gone. [Moving from
Java](../../../docs/operations/moving-from-java.md) has every step.
"""

from __future__ import annotations

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING

#: Printed by the Java program, and kept in a file beside it.
FROM_JAVA = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-FLATMAPVALUES-0000000001
    Processor: KSTREAM-FLATMAPVALUES-0000000001 (stores: [])
      --> KSTREAM-KEY-SELECT-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> counts-repartition-filter
      <-- KSTREAM-FLATMAPVALUES-0000000001
    Processor: counts-repartition-filter (stores: [])
      --> counts-repartition-sink
      <-- KSTREAM-KEY-SELECT-0000000002
    Sink: counts-repartition-sink (topic: counts-repartition)
      <-- counts-repartition-filter

  Sub-topology: 1
    Source: counts-repartition-source (topics: [counts-repartition])
      --> KSTREAM-AGGREGATE-0000000003
    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [counts])
      --> KTABLE-TOSTREAM-0000000007
      <-- counts-repartition-source
    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])
      --> KSTREAM-SINK-0000000008
      <-- KSTREAM-AGGREGATE-0000000003
    Sink: KSTREAM-SINK-0000000008 (topic: word-counts)
      <-- KTABLE-TOSTREAM-0000000007

"""


def word_count() -> Topology:
    """What in Java is `builder.stream("lines").flatMapValues(…).groupBy(…).count(…)`."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", key=STRING, value=STRING)
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store="counts")
        .to_stream()
        .to("word-counts", key=STRING, value=LONG)
    )
    return builder.build()


def test_it_is_the_same_topology() -> None:
    assert str(word_count().describe()).strip() == FROM_JAVA.strip()
