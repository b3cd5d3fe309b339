"""The comparison of two versions of a topology before an upgrade."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from millstream import (
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from millstream.cli import main
from millstream.errors import StreamsError
from millstream.serdes import JSON, LONG, STRING, Serde, json_of
from millstream.tools.serde_shapes import differences, shape_of
from millstream.tools.topology_facts import TopologyFacts, external_topics, facts_of
from millstream.tools.upgrade.compare import UpgradeComparison, compare
from millstream.tools.upgrade.findings import FindingLevel, UpgradeFinding

Program = Callable[[StreamsBuilder], Any]


def built(program: Program, *, optimize: bool = False) -> Topology:
    builder = StreamsBuilder(optimize=optimize)
    program(builder)
    return builder.build()


def facts(program: Program, **options: Any) -> TopologyFacts:
    return facts_of(built(program, **options))


def found(
    comparison: UpgradeComparison, level: FindingLevel, kind: str = ""
) -> dict[str, UpgradeFinding]:
    """The findings of a level, by name."""
    return {
        each.name: each
        for each in comparison.findings
        if each.level is level and kind in ("", each.kind)
    }


def counting(
    *, store: Any = "counts", filtered: bool = False, name: str | None = "by-value", **options: Any
) -> Program:
    """Counts by value, through a repartition topic."""

    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=STRING, value=STRING)
        if filtered:
            stream = stream.filter(lambda _, value: bool(value))
        grouped = stream.group_by(
            lambda _, value: value, key=STRING, value=options.get("value", STRING), name=name
        )
        if "windows" in options:
            table: Any = grouped.windowed_by(options["windows"]).count(store=store)
        else:
            table = grouped.count(store=store)
        if not options.get("silent"):
            table.to_stream().to("out")

    return program


def test_no_differences() -> None:
    """Everything stays, and instances of both versions may run at the same time."""
    same = compare(facts(counting()), facts(counting()))
    assert {each.level for each in same.findings} == {FindingLevel.STAYS}
    assert {each.kind for each in same.findings} >= {
        "store",
        "repartition topic",
        "input",
        "output",
    }
    assert same.can_roll
    assert not same.breaks


def test_named_state_and_topics_survive_new_operators() -> None:
    """State and topics are found by name."""
    comparison = compare(facts(counting()), facts(counting(filtered=True)))
    assert not comparison.breaks
    assert comparison.can_roll


def test_generated_names_change_with_every_new_operator() -> None:
    """The most common mistake: state and records stay behind under the old names."""
    before = facts(counting(store=None, name=None))
    after = facts(counting(store=None, name=None, filtered=True))
    broken = found(compare(before, after), FindingLevel.BREAKS)
    store = broken["KSTREAM-AGGREGATE-STATE-STORE-0000000002"]
    assert "is now called KSTREAM-AGGREGATE-STATE-STORE-0000000003" in store.what
    assert "store='KSTREAM-AGGREGATE-STATE-STORE-0000000002'" in store.remedy
    (topic,) = found(compare(before, after), FindingLevel.BREAKS, "repartition topic").values()
    assert topic.name == "KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"
    assert "unprocessed records are lost" in topic.what
    assert not compare(before, after).can_roll


def windowed(minutes: int, retention: timedelta | None = None) -> Program:
    store = Materialized("counts", retention=retention)
    return counting(store=store, windows=TimeWindows(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("old", "new", "level", "message"),
    [
        (
            counting(),
            counting(windows=TimeWindows(timedelta(minutes=5))),
            FindingLevel.BREAKS,
            "was a key-value store and is a window store",
        ),
        (
            counting(windows=SessionWindows(timedelta(minutes=5))),
            counting(windows=TimeWindows(timedelta(minutes=5))),
            FindingLevel.BREAKS,
            "was a session store and is a window store",
        ),
        (
            windowed(5),
            windowed(10),
            FindingLevel.BREAKS,
            "windows were 5 min long and would be 10 min",
        ),
        (
            windowed(5, timedelta(hours=2)),
            windowed(5, timedelta(days=1)),
            FindingLevel.CHANGES,
            "keeps 1 d instead of 2 h",
        ),
        (
            windowed(5, timedelta(days=1)),
            windowed(5, timedelta(hours=2)),
            FindingLevel.CHANGES,
            "older entries are dropped",
        ),
        (
            counting(store=Materialized("counts", key=STRING)),
            counting(store=Materialized("counts", key=JSON)),
            FindingLevel.BREAKS,
            "its keys were written by STRING and would be read by JSON",
        ),
        (
            counting(store=Materialized("counts", kind="rocksdb")),
            counting(store=Materialized("counts", kind="in_memory")),
            FindingLevel.CHANGES,
            "is stored in in_memory instead of rocksdb",
        ),
        (
            counting(),
            counting(store=Materialized("counts", logging=False)),
            FindingLevel.BREAKS,
            "no longer has a changelog",
        ),
        (
            counting(store=Materialized("counts", logging=False)),
            counting(),
            FindingLevel.BREAKS,
            "is restored from counts-changelog, which is empty, instead of nothing",
        ),
    ],
)
def test_a_changed_store(old: Program, new: Program, level: FindingLevel, message: str) -> None:
    """Bytes do not reveal their serde; each of these changes would corrupt data silently."""
    stores = found(compare(facts(old), facts(new)), level, "store")
    assert message in stores["counts"].what, stores


def test_an_optimized_table_is_restored_from_its_input() -> None:
    """The two directions differ: the new changelog is empty."""

    def table(builder: StreamsBuilder) -> None:
        builder.table("in", key=STRING, value=LONG, store="table").to_stream().to("out")

    plain, optimized = facts(table), facts(table, optimize=True)
    partition_counts = found(compare(plain, optimized), FindingLevel.CHANGES, "store")["table"]
    assert "restored from its input in instead of table-changelog" in partition_counts.what
    back = found(compare(optimized, plain), FindingLevel.BREAKS, "store")["table"]
    assert "from table-changelog, which is empty, instead of in" in back.what


def test_records_in_a_repartition_topic_must_stay_readable() -> None:
    """It contains records during the upgrade."""
    comparison = compare(facts(counting()), facts(counting(value=JSON)))
    broken = found(comparison, FindingLevel.BREAKS, "repartition topic")["by-value-repartition"]
    assert "its values were written by STRING and would be read by JSON" in broken.what


def test_changed_partition_counts() -> None:
    """The topic exists with the old count, and the new version would not start."""

    def program(partitions: int | None) -> Program:
        def add(builder: StreamsBuilder) -> None:
            stream = builder.stream("in", key=STRING, value=STRING)
            stream.repartition(partitions=partitions, name="spread").to("out")

        return add

    comparison = compare(facts(program(4)), facts(program(8)))
    broken = found(comparison, FindingLevel.BREAKS, "repartition topic")["spread-repartition"]
    assert "has 4 partitions and would have 8" in broken.what
    unsure = compare(facts(program(None)), facts(program(8)))
    assert not unsure.breaks
    assert "which must be equal" in found(unsure, FindingLevel.UNKNOWN)["spread-repartition"].what
    # No rolling upgrade is suggested if all instances must be stopped.
    assert not unsure.can_roll


def test_renumbered_sub_topologies() -> None:
    """Tasks and their directories have these numbers: a logged store is restored, an unlogged
    one is lost."""

    def program(*, first: bool, logging: bool) -> Program:
        def add(builder: StreamsBuilder) -> None:
            if first:
                builder.stream("other", key=STRING, value=STRING).to("others")
            stream = builder.stream("in", key=STRING, value=STRING)
            stream.group_by_key().count(store=Materialized("counts", logging=logging))

        return add

    for logging, level in ((True, FindingLevel.CHANGES), (False, FindingLevel.BREAKS)):
        old = facts(program(first=False, logging=logging))
        comparison = compare(old, facts(program(first=True, logging=logging)))
        assert "moves from sub-topology 0 to 1" in found(comparison, level, "store")["counts"].what
        assert "0 (in)" in found(comparison, FindingLevel.CHANGES, "sub-topology")
        assert not comparison.can_roll
        new = found(comparison, FindingLevel.CHANGES, "input")["other"]
        assert "auto.offset.reset" in new.what


def test_removed_and_added_stores() -> None:
    """A removed store breaks nothing, and leaves its changelog behind."""

    def program(*stores: str) -> Program:
        def add(builder: StreamsBuilder) -> None:
            for store in stores:
                builder.add_state_store(
                    Stores.key_value_builder(
                        Stores.persistent_key_value(store),
                        STRING,
                        LONG if store == "numbers" else JSON,
                    )
                )
            builder.stream("in", key=STRING, value=STRING).process(NoOpProcessor, stores=stores)

        return add

    comparison = compare(facts(program("numbers")), facts(program("objects")))
    changes = found(comparison, FindingLevel.CHANGES, "store")
    assert "numbers-changelog stays on the cluster" in changes["numbers"].remedy
    assert "starts empty" in changes["objects"].what
    assert not comparison.breaks


class NoOpProcessor(Processor[str, str, str, str]):
    """A processor that does nothing."""

    def process(self, record: Record[str, str]) -> None:
        return


def test_another_application() -> None:
    """A new application id means a new application without the old one's state."""

    def facts_with_id(application_id: str, **settings: Any) -> TopologyFacts:
        config = StreamsConfig(application_id=application_id, bootstrap_servers="x:1", **settings)
        return facts_of(built(counting()), config)

    comparison = compare(facts_with_id("shop"), facts_with_id("shop-2"))
    assert "starts without the state" in found(comparison, FindingLevel.BREAKS)["shop-2"].what
    exactly_once = compare(
        facts_with_id("shop"), facts_with_id("shop", processing_guarantee="exactly_once_v2")
    )
    assert "exactly_once_v2" in found(exactly_once, FindingLevel.CHANGES)["shop"].what
    assert not exactly_once.breaks


def test_comparison_with_the_cluster() -> None:
    """Internal topics with wrong partition counts, and missing outputs."""
    same = facts(counting())
    partition_counts = {"in": 4, "out": 1, "app-by-value-repartition": 4, "app-counts-changelog": 4}
    fitting = compare(same, same, partition_counts, "app")
    assert not fitting.breaks
    assert (
        "has the required 4 partitions"
        in found(fitting, FindingLevel.STAYS)["app-counts-changelog"].what
    )
    grown = compare(same, same, {**partition_counts, "in": 8}, "app")
    assert found(grown, FindingLevel.BREAKS).keys() == {
        "app-by-value-repartition",
        "app-counts-changelog",
    }
    del partition_counts["out"]
    assert found(compare(same, same, partition_counts, "app"), FindingLevel.BREAKS).keys() == {
        "out"
    }
    assert not compare(same, same, {"in": 8, "out": 1}, "app").breaks


def test_the_document_of_facts(tmp_path: Path) -> None:
    """The document written for one release is compared with the next one."""
    written = facts(counting())
    assert TopologyFacts.from_json(written.to_json(), "x.json") == written
    assert external_topics(written) == ["in", "out"]
    with pytest.raises(StreamsError, match=r"x.json was not written by `millstream describe"):
        TopologyFacts.from_json(b"{}", "x.json")


class Order(msgspec.Struct):
    """An order; each of the others is a possible next version of it."""

    user: str
    amount: int
    note: str | None = None


def struct(name: str, *fields: Any) -> Any:
    return msgspec.defstruct(name, fields)


_USER, _AMOUNT = ("user", str), ("amount", int)
_NOTE = ("note", str | None, None)


@pytest.mark.parametrize(
    ("new", "level", "message"),
    [
        (struct("Order", _USER, _AMOUNT, _NOTE), FindingLevel.STAYS, ""),
        # A class may be renamed: JSON does not contain class names.
        (struct("Renamed", _AMOUNT, _USER, _NOTE), FindingLevel.STAYS, ""),
        (
            struct("Order", _USER, ("amount", str), _NOTE),
            FindingLevel.BREAKS,
            "amount was integer and",
        ),
        (
            struct("Order", _USER, _AMOUNT, ("tax", int), _NOTE),
            FindingLevel.BREAKS,
            "tax is new and required",
        ),
        (
            struct("Order", _USER, _AMOUNT, ("note", str)),
            FindingLevel.BREAKS,
            "note may be missing",
        ),
        (
            struct("Order", _USER, ("amount", list[int]), _NOTE),
            FindingLevel.BREAKS,
            "amount was integer",
        ),
        (
            struct("Order", _USER, _AMOUNT, ("tax", int, 0), _NOTE),
            FindingLevel.CHANGES,
            "is new and optional",
        ),
        (struct("Order", _USER, _NOTE), FindingLevel.CHANGES, "amount is no longer read"),
        (struct("Order", _USER, ("amount", float), _NOTE), FindingLevel.CHANGES, "would be number"),
        (
            struct("Order", _USER, ("amount", int | None), _NOTE),
            FindingLevel.CHANGES,
            "integer or null",
        ),
    ],
)
def test_changed_fields_of_a_class(new: Any, level: FindingLevel, message: str) -> None:
    """The most common upgrade: the name of `json_of(Order)` stays the same for any fields."""

    def program(kind: Any) -> Program:
        def add(builder: StreamsBuilder) -> None:
            builder.table("in", key=STRING, value=json_of(kind), store="orders")

        return add

    before = TopologyFacts.from_json(facts(program(Order)).to_json(), "x.json")
    comparison = compare(before, facts(program(new)))
    found_here = found(comparison, level, "store")["orders"]
    assert message in found_here.what
    assert comparison.breaks == (level is FindingLevel.BREAKS)


def test_changed_fields_of_nested_classes_and_of_keys() -> None:
    """At any depth; for keys, every difference changes the key."""
    inner: Any = struct("Item", _USER)
    wider: Any = struct("Item", _USER, ("count", int, 1))
    needing: Any = struct("Item", _USER, ("count", int))

    def program(kind: Any, value: Any) -> Program:
        def add(builder: StreamsBuilder) -> None:
            stream = builder.stream("in", key=json_of(kind), value=json_of(value))
            stream.repartition(name="spread").group_by_key().windowed_by(
                TimeWindows(timedelta(minutes=1))
            ).reduce(lambda old, new: new, store="newest")

        return add

    def compared(kind: Any, value: Any) -> UpgradeComparison:
        return compare(facts(program(inner, list[inner])), facts(program(kind, value)))

    assert not compared(inner, list[inner]).breaks
    assert not compared(inner, list[wider]).breaks
    assert not compare(
        facts(program(inner, inner | None)), facts(program(inner, wider | None))
    ).breaks
    for names in (
        found(compared(inner, list[needing]), FindingLevel.BREAKS),
        found(compared(wider, list[inner]), FindingLevel.BREAKS),
    ):
        assert names.keys() == {"newest", "spread-repartition"}


class Node(msgspec.Struct):
    """Contains itself."""

    name: str
    below: list[Node] = []


Other: Any = msgspec.defstruct("Other", [("name", str), ("below", list[int], [])])


@pytest.mark.parametrize(
    ("old", "new", "readable"),
    [
        (Node, Node, True),
        (Node, Other, False),
        (dict[str, int], dict[str, float], True),
        (list[int], list[str], False),
        (Literal["a"], Literal["a", "b"], True),
        (Literal["a", "b"], Literal["a"], False),
        (tuple[int, str], tuple[int, int], False),
        (tuple[int, str], tuple[int, str, int], False),
        (
            msgspec.defstruct("Row", [_USER], array_like=True),
            msgspec.defstruct("Row", [_USER, ("more", int, 0)], array_like=True),
            True,
        ),
    ],
)
def test_shapes_of_every_kind(old: Any, new: Any, *, readable: bool) -> None:
    """Recursive types, mappings, lists, unions, rows."""
    was, is_ = shape_of(json_of(old)), shape_of(json_of(new))
    assert was is not None
    assert is_ is not None
    assert all(each.readable for each in differences(was, is_)) is readable
    assert list(differences(was, is_)) != [] or was == is_
    assert list(differences(was, was)) == []


def test_incomparable_parts_are_reported() -> None:
    """Functions without names, and the default serde of unknown settings."""

    def program(serde: Serde[Any] | None) -> Program:
        def add(builder: StreamsBuilder) -> None:
            builder.table("in", key=STRING, value=serde, store="table")

        return add

    def unnamed() -> Serde[Any]:
        return Serde(lambda _, v: v.encode(), lambda _, data: data.decode())

    comparison = compare(facts(program(unnamed())), facts(program(unnamed())))
    assert "unnamed functions" in found(comparison, FindingLevel.UNKNOWN)["table"].what
    assert not comparison.is_sure
    for old, new, which in ((STRING, None, "new"), (None, STRING, "old")):
        comparison = compare(facts(program(old)), facts(program(new)))
        finding = found(comparison, FindingLevel.UNKNOWN)["table"].what
        assert f"the serde of the {which} version is unknown" in finding
    assert compare(facts(program(None)), facts(program(None))).is_sure


def test_stores_that_swap_generated_names() -> None:
    """Two counts in reverse order swap their names: each would continue with the other's state."""

    def user(_: str, value: str) -> str:
        return value.split()[0]

    def city(_: str, value: str) -> str:
        return value.split()[1]

    def program(*selectors: Any) -> Program:
        def add(builder: StreamsBuilder) -> None:
            stream = builder.stream("in", key=STRING, value=STRING)
            for each in selectors:
                stream.group_by(each, key=STRING, value=STRING).count()

        return add

    # The same programs at other lines of a file, and others with the same names.
    first: Program = program(lambda _, v: v[0], lambda _, v: v[1])
    again: Program = program(
        lambda _, v: v[0],
        lambda _, v: v[1],
    )
    assert compare(facts(first), facts(again)).is_sure
    for old, new in (
        (program(user, city), program(city, user)),
        (first, program(lambda _, v: v[1], lambda _, v: v[0])),
    ):
        assert compare(facts(old), facts(old)).is_sure
        unsure = found(compare(facts(old), facts(new)), FindingLevel.UNKNOWN)
        assert len(unsure) == 4
        assert "KSTREAM-AGGREGATE-STATE-STORE-0000000002" in unsure


@pytest.mark.extended
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs and documents of facts; exit code 1 if something breaks, as text and as JSON."""
    text = (
        "from millstream import StreamsBuilder\nfrom millstream.serdes import STRING\n"
        "def topology():\n    b = StreamsBuilder()\n"
        "    b.stream('in', key=STRING, value=STRING){}.group_by_key().count()\n    return b\n"
    )
    for name, more in (("old", ""), ("new", ".filter(lambda k, v: v)")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text(text.format(more))
    old, new = str(tmp_path / "old" / "app.py"), str(tmp_path / "new" / "app.py")
    assert main(["describe", "--facts", old]) == 0
    deployed = tmp_path / "deployed.json"
    deployed.write_text(capsys.readouterr().out)
    assert main(["upgrade-check", str(deployed), str(deployed)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "instance by instance" in captured.err
    assert main(["upgrade-check", str(deployed), new]) == 1
    captured = capsys.readouterr()
    assert "breaks   store KSTREAM-AGGREGATE-STATE-STORE-0000000001" in captured.out
    assert "Do not start the new version" in captured.err
    assert main(["upgrade-check", str(deployed), new, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["breaks"] is True
    assert document["findings"][0]["level"] == "breaks"
