"""Migration from Java without downtime: one application in two languages.

Instances of Kafka Streams and Millstream can share one application, with the same id, the same
topology and one consumer group. A migration therefore works like an upgrade: port the topology,
compare the descriptions, start Python instances, and stop Java instances. `topology.describe()`
returns the same text in Python as in Java; a test that compares the two detects differences until
the last Java instance is stopped. [Moving from Java](../../../docs/operations/moving-from-java.md)
describes every step.
"""

from __future__ import annotations

from millstream import StreamsBuilder, Topology
from millstream.serdes import LONG, STRING

#: The output of `topology.describe()` in the Java program.
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
    """Port `builder.stream("lines").flatMapValues(…).groupBy(…).count(…)` from Java."""
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
