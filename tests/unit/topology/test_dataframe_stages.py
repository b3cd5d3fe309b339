"""`transform_dataframe`: its effects on a topology, and the checks of its arguments."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from millstream import KStream, StreamsBuilder, StreamsConfig, Topology, Trigger
from millstream.assignment.internal_topics import repartition_counts
from millstream.dataframes.stage_plan import stage_plan
from millstream.errors import ConfigError, TopologyError
from millstream.runtime.start.topology_topics import topology_topics
from millstream.serdes import JSON, LONG, STRING, json_of
from millstream.tools.topology_facts import facts_of
from millstream.topology.options.trigger import checked_trigger

CONFIG = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
INPUT = "loud-dataframe-input-repartition"
OUTPUT = "loud-dataframe-output-repartition"


def same(rows: Any) -> Any:
    return rows


def stream(builder: StreamsBuilder | None = None) -> KStream[str, str]:
    return (builder or StreamsBuilder()).stream("in", key=STRING, value=STRING)


def topology_with_stage(**options: Any) -> Topology:
    """Return a topology with a DataFrame function between a source and a count."""
    builder = StreamsBuilder()
    results = stream(builder).transform_dataframe(same, name="loud", value=LONG, **options)
    results.group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


def test_stage_is_a_sub_topology_between_two_others() -> None:
    """Descriptions as text, data and flowchart show it behind the sub-topologies with tasks."""
    described = topology_with_stage(trigger=Trigger.processing_time("2 seconds")).describe()
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


def test_topics_of_a_stage_are_repartition_topics_with_the_partitions_of_the_input() -> None:
    topics = topology_topics(topology_with_stage(), CONFIG)
    counts = repartition_counts(topics, {"in": 5})
    assert counts == {f"app-{INPUT}": 5, f"app-{OUTPUT}": 5}
    assert topics.external_source_topics == {"in"}
    for name in counts:
        assert topics.repartition_topics[name].config["retention.ms"] == "-1"
    assert {each.name for each in facts_of(topology_with_stage()).repartition_topics} == {
        INPUT,
        OUTPUT,
    }


def test_results_are_partitioned_by_key() -> None:
    """A count by key needs no further repartition topic, also behind a changed key."""
    builder = StreamsBuilder()
    changed = stream(builder).select_key(lambda key, value: value)
    results = changed.transform_dataframe(same, name="loud", input_key=STRING, input_value=STRING)
    results.group_by_key().count(store="counts")
    assert list(builder.build().internal_topics) == [INPUT, OUTPUT]


def test_two_stages_in_a_row_have_their_own_topics() -> None:
    builder = StreamsBuilder()
    first = stream(builder).transform_dataframe(same, name="one")
    first.transform_dataframe(same, name="two").to("out")
    topology = builder.build()
    assert list(topology.dataframe_stages) == ["one", "two"]
    counts = repartition_counts(topology_topics(topology, CONFIG), {"in": 3})
    assert set(counts.values()) == {3}
    assert len(counts) == 4


def test_workers_receive_no_function() -> None:
    """It may refer to objects that cannot be pickled, for example a DataFrame."""

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise TypeError("cannot be pickled")

    dimension = Unpicklable()
    builder = StreamsBuilder()
    stream(builder).transform_dataframe(lambda rows: (rows, dimension), name="loud").to("out")
    topology = builder.build()
    assert topology.dataframe_stages["loud"].function is not None
    shipped: Topology = cloudpickle.loads(cloudpickle.dumps(topology))
    assert shipped.dataframe_stages["loud"].function is None
    assert topology_topics(shipped, CONFIG) == topology_topics(topology, CONFIG)


def test_checkpoint_is_next_to_the_state_or_in_the_configured_directory() -> None:
    stage = topology_with_stage().dataframe_stages["loud"]
    config = CONFIG.replace(state_dir="/state")
    assert stage_plan(stage, config).checkpoint == "/state/app/dataframes/loud"
    config = CONFIG.replace(dataframe_checkpoint_dir="hdfs://there/notes/")
    assert stage_plan(stage, config).checkpoint == "hdfs://there/notes/app/loud"


def test_error_about_a_missing_serde_contains_the_location() -> None:
    builder = StreamsBuilder()
    changed = stream(builder).map_values(len)
    changed.transform_dataframe(same, name="loud", value=LONG).to("out")
    stage = builder.build().dataframe_stages["loud"]
    with pytest.raises(ConfigError, match=r"'loud' has no value serde\. .*input_value=.*\.py:\d+"):
        stage_plan(stage, CONFIG)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": ""}, TopologyError, "needs a name: its topics, its checkpoint"),
        ({"name": None}, TopologyError, "needs a name"),
        ({"name": "a b"}, TopologyError, "a character that is not legal in topic names"),
        ({"name": "loud", "trigger": "1 second"}, TopologyError, "takes a Trigger, but got '1"),
        ({"name": "loud", "value": str}, TypeError, "needs a Serde as its value"),
        ({"name": "loud", "input_key": "x"}, TypeError, "needs a Serde as its input_key"),
    ],
)
def test_invalid_options_are_rejected(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        stream().transform_dataframe(same, **options)


@pytest.mark.parametrize("function", ["no function", lambda: None, lambda one, two: one])
def test_function_must_have_one_parameter(function: Any) -> None:
    with pytest.raises(TypeError, match=r"function"):
        stream().transform_dataframe(function, name="loud")


def test_name_must_be_unique() -> None:
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
def test_triggers_accept_durations(interval: Any, milliseconds: int) -> None:
    assert Trigger.processing_time(interval).interval_ms == milliseconds


def test_description_contains_real_time() -> None:
    assert Trigger.real_time() == Trigger.real_time("5 seconds")
    described = str(topology_with_stage(trigger=Trigger.real_time(timedelta(minutes=1))).describe())
    assert "(function: same, trigger: real time 60000 ms)" in described


def test_real_time_has_the_minimum_of_spark() -> None:
    with pytest.raises(TopologyError, match="at least 5 seconds, but got '100 ms'"):
        Trigger.real_time("100 ms")
    with pytest.raises(TopologyError, match=r"real_time\(\) takes a duration"):
        Trigger.real_time("soon")


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        (
            {},
            {"processing_guarantee": "exactly_once_v2"},
            "uses exactly_once_v2: Spark's real-time",
        ),
        ({"value": JSON}, {}, r"its values cannot be written without Python.*: JSON needs Python"),
        (
            {"input_value": JSON},
            {},
            r"its values cannot be read .* Set input_value= to a serde that",
        ),
        (
            {"key": json_of(list[str])},
            {},
            r"keys cannot be written .* the bytes of a key determine",
        ),
    ],
)
def test_unsupported_real_time_is_rejected(
    options: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    builder = StreamsBuilder()
    real_time = {"name": "loud", "trigger": Trigger.real_time(), **options}
    stream(builder).transform_dataframe(same, **real_time).to("out")
    stage = builder.build().dataframe_stages["loud"]
    with pytest.raises(ConfigError, match=message) as raised:
        stage_plan(stage, CONFIG.replace(**settings))
    assert "test_dataframe_stages.py" in str(raised.value)


def test_invalid_triggers_are_rejected() -> None:
    with pytest.raises(TopologyError, match="takes a duration"):
        Trigger.processing_time("soon")
    with pytest.raises(TopologyError, match="takes a duration"):
        Trigger.processing_time(timedelta(seconds=-1))
    assert checked_trigger(None) == Trigger.processing_time()
