"""What is found out about two versions of a topology before the new one is started."""

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
from millstream.tools.facts import TopologyFacts, external_topics, facts_of
from millstream.tools.shapes import differences, shape_of
from millstream.tools.upgrade.compare import Comparison, compare
from millstream.tools.upgrade.findings import Finding, Level

Program = Callable[[StreamsBuilder], Any]


def built(program: Program, *, optimize: bool = False) -> Topology:
    builder = StreamsBuilder(optimize=optimize)
    program(builder)
    return builder.build()


def facts(program: Program, **options: Any) -> TopologyFacts:
    return facts_of(built(program, **options))


def found(comparison: Comparison, level: Level, kind: str = "") -> dict[str, Finding]:
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


def test_nothing_is_different() -> None:
    """All stays, and instances of both may run side by side."""
    same = compare(facts(counting()), facts(counting()))
    assert {each.level for each in same.findings} == {Level.STAYS}
    assert {each.kind for each in same.findings} >= {
        "store",
        "repartition topic",
        "input",
        "output",
    }
    assert same.may_roll
    assert not same.breaks


def test_named_things_stay_when_operators_come_before_them() -> None:
    """Names are what state and topics are found by."""
    comparison = compare(facts(counting()), facts(counting(filtered=True)))
    assert not comparison.breaks
    assert comparison.may_roll


def test_generated_names_move_with_every_operator() -> None:
    """The mistake that this is for: state and records stay behind under the old names."""
    before = facts(counting(store=None, name=None))
    after = facts(counting(store=None, name=None, filtered=True))
    broken = found(compare(before, after), Level.BREAKS)
    store = broken["KSTREAM-AGGREGATE-STATE-STORE-0000000002"]
    assert "is called KSTREAM-AGGREGATE-STATE-STORE-0000000003 now" in store.what
    assert "store='KSTREAM-AGGREGATE-STATE-STORE-0000000002'" in store.remedy
    (topic,) = found(compare(before, after), Level.BREAKS, "repartition topic").values()
    assert topic.name == "KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition"
    assert "never is" in topic.what
    assert not compare(before, after).may_roll


def windowed(minutes: int, retention: timedelta | None = None) -> Program:
    store = Materialized("counts", retention=retention)
    return counting(store=store, windows=TimeWindows(timedelta(minutes=minutes)))


@pytest.mark.parametrize(
    ("old", "new", "level", "said"),
    [
        (
            counting(),
            counting(windows=TimeWindows(timedelta(minutes=5))),
            Level.BREAKS,
            "was a key-value store and is a window one",
        ),
        (
            counting(windows=SessionWindows(timedelta(minutes=5))),
            counting(windows=TimeWindows(timedelta(minutes=5))),
            Level.BREAKS,
            "was a session store and is a window one",
        ),
        (windowed(5), windowed(10), Level.BREAKS, "windows were 5 min long and would be 10 min"),
        (
            windowed(5, timedelta(hours=2)),
            windowed(5, timedelta(days=1)),
            Level.CHANGES,
            "keeps 1 d instead of 2 h",
        ),
        (
            windowed(5, timedelta(days=1)),
            windowed(5, timedelta(hours=2)),
            Level.CHANGES,
            "what is older is dropped",
        ),
        (
            counting(store=Materialized("counts", key=STRING)),
            counting(store=Materialized("counts", key=JSON)),
            Level.BREAKS,
            "its keys were written by STRING and would be read by JSON",
        ),
        (
            counting(store=Materialized("counts", kind="rocksdb")),
            counting(store=Materialized("counts", kind="in_memory")),
            Level.CHANGES,
            "is kept in in_memory instead of rocksdb",
        ),
        (
            counting(),
            counting(store=Materialized("counts", logging=False)),
            Level.BREAKS,
            "has no changelog any more",
        ),
        (
            counting(store=Materialized("counts", logging=False)),
            counting(),
            Level.BREAKS,
            "is restored from counts-changelog, which is empty, instead of nothing",
        ),
    ],
)
def test_a_store_that_is_another(old: Program, new: Program, level: Level, said: str) -> None:
    """Bytes do not tell what wrote them; each of these would go wrong in silence."""
    stores = found(compare(facts(old), facts(new)), level, "store")
    assert said in stores["counts"].what, stores


def test_an_optimized_table_is_restored_from_its_input() -> None:
    """There and back are not the same: the changelog that comes is empty."""

    def table(builder: StreamsBuilder) -> None:
        builder.table("in", key=STRING, value=LONG, store="table").to_stream().to("out")

    plain, optimized = facts(table), facts(table, optimize=True)
    there = found(compare(plain, optimized), Level.CHANGES, "store")["table"]
    assert "restored from its input in instead of table-changelog" in there.what
    back = found(compare(optimized, plain), Level.BREAKS, "store")["table"]
    assert "from table-changelog, which is empty, instead of in" in back.what


def test_what_is_in_a_repartition_topic_is_read_by_the_new_version() -> None:
    """Records are in it while versions change."""
    comparison = compare(facts(counting()), facts(counting(value=JSON)))
    broken = found(comparison, Level.BREAKS, "repartition topic")["by-value-repartition"]
    assert "its values were written by STRING and would be read by JSON" in broken.what


def test_partition_counts_that_the_program_says() -> None:
    """The topic exists with as many as before, and the new version refuses to start."""

    def program(partitions: int | None) -> Program:
        def add(builder: StreamsBuilder) -> None:
            stream = builder.stream("in", key=STRING, value=STRING)
            stream.repartition(partitions=partitions, name="spread").to("out")

        return add

    comparison = compare(facts(program(4)), facts(program(8)))
    broken = found(comparison, Level.BREAKS, "repartition topic")["spread-repartition"]
    assert "has 4 partitions and would have 8" in broken.what
    unsure = compare(facts(program(None)), facts(program(8)))
    assert not unsure.breaks
    assert "which must be equal" in found(unsure, Level.UNKNOWN)["spread-repartition"].what
    # What wants all instances closed is not said to go one by one.
    assert not unsure.may_roll


def test_sub_topologies_that_get_another_number() -> None:
    """Tasks and their folders are named after them: a logged store is restored, another is lost."""

    def program(*, first: bool, logging: bool) -> Program:
        def add(builder: StreamsBuilder) -> None:
            if first:
                builder.stream("other", key=STRING, value=STRING).to("others")
            stream = builder.stream("in", key=STRING, value=STRING)
            stream.group_by_key().count(store=Materialized("counts", logging=logging))

        return add

    for logging, level in ((True, Level.CHANGES), (False, Level.BREAKS)):
        old = facts(program(first=False, logging=logging))
        comparison = compare(old, facts(program(first=True, logging=logging)))
        assert "moves from sub-topology 0 to 1" in found(comparison, level, "store")["counts"].what
        assert "0 (in)" in found(comparison, Level.CHANGES, "sub-topology")
        assert not comparison.may_roll
        new = found(comparison, Level.CHANGES, "input")["other"]
        assert "auto.offset.reset" in new.what


def test_what_goes_and_what_comes() -> None:
    """A store that is not needed any more breaks nothing, and leaves its changelog behind."""

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
            builder.stream("in", key=STRING, value=STRING).process(Forgetful, stores=stores)

        return add

    comparison = compare(facts(program("numbers")), facts(program("objects")))
    changes = found(comparison, Level.CHANGES, "store")
    assert "numbers-changelog stays on the cluster" in changes["numbers"].remedy
    assert "begins empty" in changes["objects"].what
    assert not comparison.breaks


class Forgetful(Processor[str, str, str, str]):
    """A processor that does nothing."""

    def process(self, record: Record[str, str]) -> None:
        return


def test_another_application() -> None:
    """A new id is a new application, which knows nothing of the old one's state."""

    def known(application_id: str, **settings: Any) -> TopologyFacts:
        config = StreamsConfig(application_id=application_id, bootstrap_servers="x:1", **settings)
        return facts_of(built(counting()), config)

    comparison = compare(known("shop"), known("shop-2"))
    assert "begins with nothing" in found(comparison, Level.BREAKS)["shop-2"].what
    safer = compare(known("shop"), known("shop", processing_guarantee="exactly_once_v2"))
    assert "exactly_once_v2" in found(safer, Level.CHANGES)["shop"].what
    assert not safer.breaks


def test_the_cluster_is_looked_at() -> None:
    """Internal topics whose partition counts do not fit any more, and outputs that are missing."""
    same = facts(counting())
    there = {"in": 4, "out": 1, "app-by-value-repartition": 4, "app-counts-changelog": 4}
    fitting = compare(same, same, there, "app")
    assert not fitting.breaks
    assert (
        "has the 4 partitions it needs" in found(fitting, Level.STAYS)["app-counts-changelog"].what
    )
    grown = compare(same, same, {**there, "in": 8}, "app")
    assert found(grown, Level.BREAKS).keys() == {"app-by-value-repartition", "app-counts-changelog"}
    del there["out"]
    assert found(compare(same, same, there, "app"), Level.BREAKS).keys() == {"out"}
    assert not compare(same, same, {"in": 8, "out": 1}, "app").breaks


def test_the_document_of_facts(tmp_path: Path) -> None:
    """What is written with a release is what is compared with the next one."""
    known = facts(counting())
    assert TopologyFacts.from_json(known.to_json(), "x.json") == known
    assert external_topics(known) == ["in", "out"]
    with pytest.raises(StreamsError, match=r"x.json is not what `millstream describe"):
        TopologyFacts.from_json(b"{}", "x.json")


class Order(msgspec.Struct):
    """An order; each of the others is a next version of it."""

    user: str
    amount: int
    note: str | None = None


def struct(name: str, *fields: Any) -> Any:
    return msgspec.defstruct(name, fields)


_USER, _AMOUNT = ("user", str), ("amount", int)
_NOTE = ("note", str | None, None)


@pytest.mark.parametrize(
    ("new", "level", "said"),
    [
        (struct("Order", _USER, _AMOUNT, _NOTE), Level.STAYS, ""),
        # A class may be called otherwise: JSON has no names of classes.
        (struct("Renamed", _AMOUNT, _USER, _NOTE), Level.STAYS, ""),
        (struct("Order", _USER, ("amount", str), _NOTE), Level.BREAKS, "amount was integer and"),
        (struct("Order", _USER, _AMOUNT, ("tax", int), _NOTE), Level.BREAKS, "tax is new, which"),
        (struct("Order", _USER, _AMOUNT, ("note", str)), Level.BREAKS, "note may be missing"),
        (struct("Order", _USER, ("amount", list[int]), _NOTE), Level.BREAKS, "amount was integer"),
        (struct("Order", _USER, _AMOUNT, ("tax", int, 0), _NOTE), Level.CHANGES, "does not need"),
        (struct("Order", _USER, _NOTE), Level.CHANGES, "amount is not read any more"),
        (struct("Order", _USER, ("amount", float), _NOTE), Level.CHANGES, "would be number"),
        (struct("Order", _USER, ("amount", int | None), _NOTE), Level.CHANGES, "integer or null"),
    ],
)
def test_fields_of_a_class_that_are_others(new: Any, level: Level, said: str) -> None:
    """The commonest upgrade there is: `json_of(Order)` is called the same, whatever is in it."""

    def program(kind: Any) -> Program:
        def add(builder: StreamsBuilder) -> None:
            builder.table("in", key=STRING, value=json_of(kind), store="orders")

        return add

    before = TopologyFacts.from_json(facts(program(Order)).to_json(), "x.json")
    comparison = compare(before, facts(program(new)))
    found_here = found(comparison, level, "store")["orders"]
    assert said in found_here.what
    assert comparison.breaks == (level is Level.BREAKS)


def test_fields_of_classes_within_classes_and_of_keys() -> None:
    """Wherever they stand; of keys every difference is another key."""
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

    def compared(kind: Any, value: Any) -> Comparison:
        return compare(facts(program(inner, list[inner])), facts(program(kind, value)))

    assert not compared(inner, list[inner]).breaks
    assert not compared(inner, list[wider]).breaks
    assert not compare(
        facts(program(inner, inner | None)), facts(program(inner, wider | None))
    ).breaks
    for names in (
        found(compared(inner, list[needing]), Level.BREAKS),
        found(compared(wider, list[inner]), Level.BREAKS),
    ):
        assert names.keys() == {"newest", "spread-repartition"}


class Node(msgspec.Struct):
    """Holds itself."""

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
    """Types that hold themselves, mappings, lists, choices, rows."""
    was, is_ = shape_of(json_of(old)), shape_of(json_of(new))
    assert was is not None
    assert is_ is not None
    assert all(each.readable for each in differences(was, is_)) is readable
    assert list(differences(was, is_)) != [] or was == is_
    assert list(differences(was, was)) == []


def test_what_cannot_be_compared_is_told() -> None:
    """Functions without names, and the default serde of settings that cannot be seen."""

    def program(serde: Serde[Any] | None) -> Program:
        def add(builder: StreamsBuilder) -> None:
            builder.table("in", key=STRING, value=serde, store="table")

        return add

    def nameless() -> Serde[Any]:
        return Serde(lambda _, v: v.encode(), lambda _, data: data.decode())

    comparison = compare(facts(program(nameless())), facts(program(nameless())))
    assert "without a name" in found(comparison, Level.UNKNOWN)["table"].what
    assert not comparison.is_sure
    for old, new, which in ((STRING, None, "new"), (None, STRING, "old")):
        comparison = compare(facts(program(old)), facts(program(new)))
        said = found(comparison, Level.UNKNOWN)["table"].what
        assert f"the serde of the {which} one is not known" in said
    assert compare(facts(program(None)), facts(program(None))).is_sure


def test_stores_that_take_each_others_generated_names() -> None:
    """Two counts in the other order have the same names crosswise: one goes on as the other."""

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

    # The same programs in other places of a file, and others under the same names.
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
        unsure = found(compare(facts(old), facts(new)), Level.UNKNOWN)
        assert len(unsure) == 4
        assert "KSTREAM-AGGREGATE-STATE-STORE-0000000002" in unsure


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs and documents of facts; exit code 1 if something breaks, in words and as JSON."""
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
    said = capsys.readouterr()
    assert said.out == ""
    assert "instance by instance" in said.err
    assert main(["upgrade-check", str(deployed), new]) == 1
    said = capsys.readouterr()
    assert "breaks   store KSTREAM-AGGREGATE-STATE-STORE-0000000001" in said.out
    assert "Do not start the new version" in said.err
    assert main(["upgrade-check", str(deployed), new, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["breaks"] is True
    assert document["findings"][0]["level"] == "breaks"
