"""The topics of an application, and problems of a cluster's topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.cli import main
from millstream.serdes import STRING
from millstream.tools.application_topics import (
    partitions_to_create,
    read_topics,
    topic_settings,
    topics_of,
)
from millstream.tools.topology_facts import facts_of

CONFIG = StreamsConfig(
    application_id="shop",
    bootstrap_servers="x:1",
    default_key_serde=STRING,
    default_value_serde=STRING,
    errors_dead_letter_queue_topic_name="dead",
)


def shop() -> Topology:
    """Two joined inputs, a count after a repartition topic, a global table."""
    builder = StreamsBuilder()
    towns = builder.global_table("towns", store="towns")
    customers = builder.table("customers", store="customers")
    orders = builder.stream("orders").join(customers, lambda order, customer: order + customer)
    orders.join(towns, lambda order, town: order + town, key_selector=lambda key, _: key)
    orders.group_by(lambda _, order: order, name="by-order").count(store="counts")
    orders.to("placed")
    return builder.build()


def test_roles_and_requirements() -> None:
    """Each topic with its roles; internal topics come last, the changelog of the count at the
    end."""
    uses = topics_of(shop(), CONFIG, {"orders": 4, "customers": 4, "shop-counts-changelog": 3})
    assert {use.name: (use.roles, use.needed) for use in uses} == {
        "customers": (("input",), None),
        "orders": (("input",), None),
        "placed": (("output",), None),
        "towns": (("global",), None),
        "dead": (("dead letters",), None),
        "shop-by-order-repartition": (("repartition",), 4),
        "shop-customers-changelog": (("changelog",), 4),
        "shop-counts-changelog": (("changelog",), 4),
    }
    problems = {use.name: use.problem() for use in uses if use.problem()}
    assert problems == {
        "placed": "missing",
        "towns": "missing",
        "dead": "missing",
        "shop-counts-changelog": "needs 4 partitions",
    }
    assert [use.is_internal for use in uses] == [False] * 5 + [True] * 3


def test_which_topics_are_created_compacted() -> None:
    """Those of tables and global tables, with and without a store, including internal ones; no
    others."""
    builder = StreamsBuilder()
    builder.table("unkept").join(builder.table("kept", store="kept"), lambda a, b: a + b)
    builder.stream("orders").to_table(store="of-stream")
    builder.stream("orders").repartition(name="again").to_table(store="of-repartition")
    builder.stream("orders").to("placed")
    builder.global_table("towns", store="towns")
    for topology in (builder.build(), _optimized()):
        compacted = {
            use.name
            for use in topics_of(topology, CONFIG)
            if topic_settings(topology, use.name) == {"cleanup.policy": "compact"}
        }
        expected = {"unkept", "kept", "towns"} if topology.global_stores else {"kept"}
        assert compacted == expected
        assert set(facts_of(topology).compacted_topics) == expected


def _optimized() -> Topology:
    builder = StreamsBuilder(optimize="all")
    builder.table("kept", store="kept").to_stream().to("out")
    return builder.build()


def test_partition_counts_of_missing_topics() -> None:
    """As many as its join partner; otherwise as many as the largest input."""
    topology = shop()
    counts = {"customers": 3}
    missing = [use for use in topics_of(topology, CONFIG, counts) if use.problem() == "missing"]
    chosen = partitions_to_create(topology, CONFIG, missing, counts)
    assert chosen == {"orders": 3, "placed": 3, "towns": 3, "dead": 3}


def test_input_topics_of_a_group() -> None:
    """Repartition topics and topics that match patterns, but no global topics."""
    assert read_topics(shop(), CONFIG, lambda _: ()) == [
        "customers",
        "orders",
        "shop-by-order-repartition",
    ]


def test_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the list, with a placeholder for the application's name."""
    file = tmp_path / "app.py"
    file.write_text(
        "import re\nfrom millstream import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream(re.compile('a.*')).to('out')\nbuilder.stream('in').group_by_key().count()\n"
    )
    assert main(["topics", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["topics"]][:2] == ["out", "in"]
    assert document["topics"][-1]["name"].startswith("APPLICATION-ID-KSTREAM-AGGREGATE")
    assert document["patterns"] == ["a.*"]
    assert main(["topics", str(file)]) == 0
    assert "The program also reads topics that match a.*" in capsys.readouterr().err
    assert main(["topics", str(file), "--create"]) == 2


def test_precedence_of_application_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The option before the file, the file before the program, with or without a cluster."""
    program = tmp_path / "app.py"
    program.write_text(
        "from millstream import StreamsBuilder, StreamsConfig\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in').group_by_key().count(store='counts')\n"
        "config = StreamsConfig(application_id='shop', bootstrap_servers='x:1')\n"
    )
    file = tmp_path / "client.properties"
    file.write_text("application.id=mail\n")
    for words, named in (
        ([], "shop"),
        (["--config-file", str(file)], "mail"),
        (["--config-file", str(file), "--application-id", "till"], "till"),
    ):
        assert main(["topics", str(program), "--offline", "--json", *words]) == 0
        topics = json.loads(capsys.readouterr().out)["topics"]
        assert [each["name"] for each in topics] == ["in", f"{named}-counts-changelog"]
