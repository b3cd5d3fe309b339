"""`transform_dataframe` where it is declared: how it cuts a topology, what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from millstream import KStream, StreamsBuilder, StreamsConfig, Topology, Trigger
from millstream.assignment.internal_topics import repartition_counts
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.topology_topics import topology_topics
from millstream.serdes import JSON, LONG, STRING, json_of
from millstream.structured.plan import stage_plan
from millstream.tools.facts import facts_of
from millstream.topology.options.trigger import checked_trigger

CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
INPUT = "loud-dataframe-input-repartition"
OUTPUT = "loud-dataframe-output-repartition"


def same(rows: Any) -> Any:
    return rows


def stream(builder: StreamsBuilder | None = None) -> KStream[str, str]:
    return (builder or StreamsBuilder()).stream("in", key=STRING, value=STRING)


def loud(**options: Any) -> Topology:
    """A function between a source and a count."""
    builder = StreamsBuilder()
    results = stream(builder).transform_dataframe(same, name="loud", value=LONG, **options)
    results.group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


def test_it_is_a_sub_topology_between_two_others() -> None:
    """Text, plain data and flowchart show it, behind the sub-topologies with tasks."""
    described = loud(trigger=Trigger.processing_time("2 seconds")).describe()
    assert [part.id for part in described.subtopologies] == [0, 1]
    text = str(described)
    assert "Sub-topology: 2 for DataFrame function (will not generate tasks)" in text
    assert "DataFrame: loud (function: same, trigger: processing time 2000 ms)" in text
    assert described.to_dict()["dataframes"] == [
        {
            "id": 2,
            "name": "loud",
            "function": "same",
            "trigger": "processing time 2000 ms",
            "topics": [INPUT],
            "output_topic": OUTPUT,
        }
    ]
    flowchart = described.to_mermaid()
    assert 'subgraph sub2["DataFrame function 2"]' in flowchart
    assert flowchart.count(INPUT) == flowchart.count(OUTPUT) == 1
    assert "dataframes" not in StreamsBuilder().build().describe().to_dict()


def test_its_topics_are_repartition_topics_with_the_partitions_of_the_input() -> None:
    topics = topology_topics(loud(), CONFIG)
    counts = repartition_counts(topics, {"in": 5})
    assert counts == {f"app-{INPUT}": 5, f"app-{OUTPUT}": 5}
    assert topics.external_source_topics == {"in"}
    for name in counts:
        assert topics.repartition_topics[name].config["retention.ms"] == "-1"
    assert {each.name for each in facts_of(loud()).repartition_topics} == {INPUT, OUTPUT}


def test_what_comes_out_is_placed_by_key() -> None:
    """A count by key needs no further repartition topic, also behind a changed key."""
    builder = StreamsBuilder()
    changed = stream(builder).select_key(lambda key, value: value)
    results = changed.transform_dataframe(same, name="loud", input_key=STRING, input_value=STRING)
    results.group_by_key().count(store="counts")
    assert list(builder.build().internal_topics) == [INPUT, OUTPUT]


def test_two_in_a_row_have_topics_of_their_own() -> None:
    builder = StreamsBuilder()
    first = stream(builder).transform_dataframe(same, name="one")
    first.transform_dataframe(same, name="two").to("out")
    topology = builder.build()
    assert list(topology.dataframe_stages) == ["one", "two"]
    counts = repartition_counts(topology_topics(topology, CONFIG), {"in": 3})
    assert set(counts.values()) == {3}
    assert len(counts) == 4


def test_workers_get_no_function() -> None:
    """It may hold what cannot be pickled, a DataFrame for example."""

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise TypeError("stays here")

    dimension = Unpicklable()
    builder = StreamsBuilder()
    stream(builder).transform_dataframe(lambda rows: (rows, dimension), name="loud").to("out")
    topology = builder.build()
    assert topology.dataframe_stages["loud"].function is not None
    shipped: Topology = cloudpickle.loads(cloudpickle.dumps(topology))
    assert shipped.dataframe_stages["loud"].function is None
    assert topology_topics(shipped, CONFIG) == topology_topics(topology, CONFIG)


def test_the_checkpoint_lies_beside_the_state_or_where_the_settings_say() -> None:
    stage = loud().dataframe_stages["loud"]
    config = CONFIG.replace(state_dir="/state")
    assert stage_plan(stage, config).checkpoint == "/state/app/dataframes/loud"
    config = CONFIG.replace(dataframe_checkpoint_dir="hdfs://there/notes/")
    assert stage_plan(stage, config).checkpoint == "hdfs://there/notes/app/loud"


def test_a_missing_serde_is_told_with_the_place() -> None:
    builder = StreamsBuilder()
    changed = stream(builder).map_values(len)
    changed.transform_dataframe(same, name="loud", value=LONG).to("out")
    stage = builder.build().dataframe_stages["loud"]
    with pytest.raises(ConfigError, match=r"no value serde .* 'loud': .*input_value=.*\.py:\d+"):
        stage_plan(stage, CONFIG)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"name": ""}, TopologyError, "needs a name: its topics, its checkpoint"),
        ({"name": None}, TopologyError, "needs a name"),
        ({"name": "a b"}, TopologyError, "holds a character that topics cannot have"),
        ({"name": "loud", "trigger": "1 second"}, TopologyError, "takes a Trigger, but got '1"),
        ({"name": "loud", "value": str}, TypeError, "needs a Serde as its value"),
        ({"name": "loud", "input_key": "x"}, TypeError, "needs a Serde as its input_key"),
    ],
)
def test_bad_options_are_refused(
    options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        stream().transform_dataframe(same, **options)


@pytest.mark.parametrize("function", ["no function", lambda: None, lambda one, two: one])
def test_what_is_no_function_of_one_argument_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match=r"function"):
        stream().transform_dataframe(function, name="loud")


def test_a_name_is_taken_once() -> None:
    builder = StreamsBuilder()
    one = stream(builder)
    one.transform_dataframe(same, name="loud").to("out")
    one.transform_dataframe(same, name="loud").to("out")
    with pytest.raises(TopologyError, match="another"):
        builder.build()


@pytest.mark.parametrize(
    ("interval", "milliseconds"),
    [("500 ms", 500), ("2 seconds", 2_000), ("1 minute", 60_000), (timedelta(hours=1), 3_600_000)],
)
def test_triggers_take_lengths_of_time(interval: Any, milliseconds: int) -> None:
    assert Trigger.processing_time(interval).interval_ms == milliseconds


def test_real_time_is_told_in_the_description() -> None:
    assert Trigger.real_time() == Trigger.real_time("5 seconds")
    described = str(loud(trigger=Trigger.real_time(timedelta(minutes=1))).describe())
    assert "(function: same, trigger: real time 60000 ms)" in described


def test_real_time_takes_at_least_spark_s_least() -> None:
    with pytest.raises(TopologyError, match="at least 5 seconds, but got '100 ms'"):
        Trigger.real_time("100 ms")
    with pytest.raises(TopologyError, match=r"real_time\(\) takes a length of time"):
        Trigger.real_time("soon")


@pytest.mark.parametrize(
    ("options", "settings", "told"),
    [
        ({}, {"processing_guarantee": "exactly_once_v2"}, "is exactly_once_v2: Spark's real-time"),
        ({"value": JSON}, {}, r"its values cannot be written without Python.*: JSON is read by"),
        ({"input_value": JSON}, {}, r"its values cannot be read .* Give input_value= a serde that"),
        ({"key": json_of(list[str])}, {}, r"keys cannot be written .* a key's bytes say where"),
    ],
)
def test_real_time_is_refused_where_it_cannot_be(
    options: dict[str, Any], settings: dict[str, Any], told: str
) -> None:
    builder = StreamsBuilder()
    real_time = {"name": "loud", "trigger": Trigger.real_time(), **options}
    stream(builder).transform_dataframe(same, **real_time).to("out")
    stage = builder.build().dataframe_stages["loud"]
    with pytest.raises(ConfigError, match=told) as raised:
        stage_plan(stage, CONFIG.replace(**settings))
    assert "test_dataframe_stages.py" in str(raised.value)


def test_triggers_refuse_what_is_none() -> None:
    with pytest.raises(TopologyError, match="takes a length of time"):
        Trigger.processing_time("soon")
    with pytest.raises(TopologyError, match="takes a length of time"):
        Trigger.processing_time(timedelta(seconds=-1))
    assert checked_trigger(None) == Trigger.processing_time()
