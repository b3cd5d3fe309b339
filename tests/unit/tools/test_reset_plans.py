"""Where partitions are read from after a reset, and which topics are internal."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.cli import main
from millstream.cli.commands import reset
from millstream.errors import ConfigError, StreamsError
from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.tools.reset.internal import internal_topics, looks_internal
from millstream.tools.reset.plan import ResetPlan, execute, plan_reset
from millstream.tools.reset.targets import (
    EARLIEST,
    LATEST,
    Target,
    check_complete,
    read_plan,
    target_offset,
)
from millstream.tools.reset.wanted import Wanted, wanted_of
from millstream.tools.times import ago_ms, time_ms

PLACE = TopicPartition("in", 0)


@pytest.mark.parametrize(
    ("target", "committed", "at_time", "expected"),
    [
        (EARLIEST, 50, None, 10),
        (LATEST, 50, None, 90),
        (Target("offset", 42), 50, None, 42),
        # What lies outside of the topic is taken to its nearer end.
        (Target("offset", 3), 50, None, 10),
        (Target("offset", 900), 50, None, 90),
        (Target("shift", -20), 50, None, 30),
        (Target("shift", 100), 50, None, 90),
        (Target("shift", -100), 50, None, 10),
        # A consumer without a committed offset stands at the end.
        (Target("shift", -20), None, None, 70),
        (Target("time", 1_000), 50, 60, 60),
        (Target("time", 1_000), 50, None, 90),
        (Target("file", plan={PLACE: 77}), 50, None, 77),
        (Target("file", plan={PLACE: 7}), 50, None, 10),
    ],
)
def test_where_a_partition_is_read_from(
    target: Target, committed: int | None, at_time: int | None, expected: int
) -> None:
    """Each of the ways, of a topic with the offsets 10 to 90."""
    assert target_offset(target, PLACE, 10, 90, committed, at_time) == expected


def test_which_topics_are_internal() -> None:
    """Kafka's names for them, of this application, those of the user and of others left alone."""
    topics = {
        "shop-counts-changelog",
        "shop-by-value-repartition",
        "shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000021-topic",
        "shop-x-subscription-registration-topic",
        "shop-orders",
        "shop-prices-changelog",
        "shop-eu-counts-changelog",
        "mail-counts-changelog",
        "odd-name",
    }
    found = internal_topics(
        "shop",
        topics,
        user_topics=["shop-prices-changelog"],
        groups=["shop", "shop-eu", "mail"],
    )
    assert found.own == [
        "shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000021-topic",
        "shop-by-value-repartition",
        "shop-counts-changelog",
        "shop-x-subscription-registration-topic",
    ]
    assert found.others == {"shop-eu-counts-changelog": "shop-eu"}
    assert found.unknown == []
    # Known to the topology, whatever other groups there are; and nothing else.
    sure = internal_topics(
        "shop",
        topics,
        user_topics=["shop-prices-changelog"],
        groups=["shop-eu"],
        known=["shop-eu-counts-changelog", "odd-name"],
    )
    assert sure.own == ["odd-name", "shop-eu-counts-changelog"]
    assert sure.others == {}
    assert sure.unknown == found.own
    assert not looks_internal("shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-x-topic")


SHOP = StreamsConfig(
    application_id="shop",
    bootstrap_servers="x:1",
    errors_dead_letter_queue_topic_name="shop-x-changelog",
)


def _shop() -> Topology:
    """Reads and writes topics of the user's that are called like internal ones."""
    builder = StreamsBuilder()
    builder.global_table("shop-rates-changelog", key=STRING, value=STRING)
    builder.table("shop-prices-changelog", key=STRING, value=STRING, store="prices")
    others = re.compile("shop-(others-repartition|counts-changelog)")
    builder.stream(others, key=STRING, value=STRING).to("copies")
    counts = builder.stream("in", key=STRING, value=STRING).group_by(
        lambda _, word: word, key=STRING, value=STRING, name="by-word"
    )
    counts.count(store="counts").to_stream().to("shop-revenue-changelog", key=STRING, value=LONG)
    return builder.build()


@pytest.mark.parametrize("inputs", [None, ("in",)])
def test_what_the_user_reads_and_writes_is_not_deleted(inputs: tuple[str, ...] | None) -> None:
    """Sinks, global topics, inputs that are not reset, dead letters: none is the application's."""
    users = {f"shop-{name}-changelog" for name in ("rates", "prices", "revenue", "x")}
    users.add("shop-others-repartition")
    own = ["shop-by-word-repartition", "shop-counts-changelog"]
    cluster = [*users, *own, "in", "shop-eu-x-changelog"]

    def matching(pattern: re.Pattern[str]) -> list[str]:
        return [topic for topic in cluster if pattern.fullmatch(topic)]

    wanted = wanted_of(_shop(), SHOP, matching, EARLIEST, inputs=inputs)
    assert users <= set(wanted.user_topics)
    found = internal_topics(
        "shop", cluster, user_topics=wanted.user_topics, groups=["shop"], known=wanted.known
    )
    # That of another application, whose group is not on the cluster, is not this program's.
    assert (found.own, found.unknown) == (own, ["shop-eu-x-changelog"])


def test_a_file_of_offsets(tmp_path: Path) -> None:
    """A line for each partition; what is missing or wrong is named."""
    file = tmp_path / "plan.csv"
    file.write_text("in,0,5\nin, 1, 7\n\n")
    plan = read_plan(file)
    assert plan == {PLACE: 5, TopicPartition("in", 1): 7}
    target = Target("file", plan=plan)
    check_complete(target, list(plan))
    with pytest.raises(ConfigError, match=r"no line for 1 partitions of the input topics: in,2"):
        check_complete(target, [*plan, TopicPartition("in", 2)])
    for text, said in (("in,0\n", "line 1"), ("in,0,-5\n", "line 1"), ("\n", "is empty")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_plan(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path / "nothing")


def test_times() -> None:
    """UTC unless they say otherwise; durations as Java reads them."""
    assert time_ms("1970-01-01T00:00:01.500") == 1_500
    assert time_ms("1970-01-01T02:00:00+02:00") == 0
    assert time_ms("1970-01-01T00:00:00Z") == 0
    assert ago_ms("P1DT2H30M", 100_000_000) == 100_000_000 - 95_400_000
    # To the millisecond, where seconds with a fraction are a little less.
    assert time_ms("2038-09-13T16:30:28.844Z") == 2_168_008_228_844
    assert ago_ms("PT1.001S", 0) == -1_001
    with pytest.raises(ConfigError, match="'soon' is no time"):
        time_ms("soon")
    with pytest.raises(ConfigError, match="'1 day' is no duration"):
        ago_ms("1 day", 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to-latest", "--shift-by", "3"], "--to-latest and --shift-by exclude each other"),
        (["--execute", "--dry-run"], "--execute and --dry-run exclude each other"),
        (["--to-datetime", "soon"], "'soon' is no time"),
        (["--by-duration", "soon"], "'soon' is no duration"),
        (["--by-duration", "P1000000000D"], "'P1000000000D' is no duration"),
    ],
)
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before any cluster is asked."""
    assert main(["reset", "--application-id", "shop", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_times_before_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first record. Kafka refuses negative times, but for -1, which is the end to it."""
    targets: list[Target] = []

    def planned(_: object, __: object, wanted: Wanted) -> ResetPlan:
        targets.append(wanted.target)
        raise StreamsError("That is enough.")

    monkeypatch.setattr(reset, "asking", lambda *_: nullcontext())
    monkeypatch.setattr(reset, "plan_reset", planned)
    for words in (
        ["--by-duration", "P36500D"],
        ["--to-datetime", "1969-12-31T23:59:59.999"],
        ["--to-datetime", "1970-01-01T00:00:00.001"],
    ):
        wanted = ["--application-id", "shop", "--bootstrap-servers", "x:1", *words]
        assert main(["reset", *wanted]) == 1
    assert targets == [Target("time", 0), Target("time", 0), Target("time", 1)]


class _EmptyCluster:
    """A cluster that has heard of nothing."""

    def topics_matching(self, pattern: str) -> list[str]:
        return ["shop-price-dataframe-input-repartition"]

    def groups(self) -> list[str]:
        return []

    def members(self, group: str) -> list[Any]:
        return []

    def commit(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        assert offsets == {}

    def delete_topics(self, topics: tuple[str, ...]) -> None:
        self.deleted = topics

    def __getattr__(self, name: str) -> Any:
        # Of no partitions nothing is told.
        return lambda *_: {}


def test_checkpoints_of_dataframe_functions_go_with_the_local_state(tmp_path: Path) -> None:
    """Also where the settings put them; those of other applications stay."""
    for folder in ("notes/shop/price", "notes/other/price", "state/shop/dataframes/price"):
        (tmp_path / folder).mkdir(parents=True)
    config = StreamsConfig(
        application_id="shop",
        bootstrap_servers="nowhere:9092",
        state_dir=str(tmp_path / "state"),
        dataframe_checkpoint_dir=str(tmp_path / "notes"),
    )
    cluster: Any = _EmptyCluster()
    plan = plan_reset(cluster, config, Wanted((), (), EARLIEST))
    assert plan.checkpoints == tmp_path / "notes" / "shop"
    execute(cluster, config, plan, force=False)
    assert cluster.deleted == ("shop-price-dataframe-input-repartition",)
    assert not (tmp_path / "notes" / "shop").exists()
    assert not (tmp_path / "state" / "shop" / "dataframes").exists()
    assert (tmp_path / "notes" / "other" / "price").exists()
    elsewhere = config.replace(dataframe_checkpoint_dir="hdfs://there/notes")
    assert plan_reset(cluster, elsewhere, Wanted((), (), EARLIEST)).checkpoints is None
