"""Offsets after a reset, and the recognition of internal topics."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.cli import main
from millstream.cli.commands import reset
from millstream.durations import ago_ms, time_ms
from millstream.errors import ConfigError, StreamsError
from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.tools.application_reset import (
    EARLIEST,
    LATEST,
    OffsetTarget,
    ResetPlan,
    ResetRequest,
    check_complete,
    execute,
    internal_topics,
    looks_internal,
    plan_reset,
    read_plan,
    reset_request,
    target_offset,
)

PLACE = TopicPartition("in", 0)


@pytest.mark.parametrize(
    ("target", "committed", "at_time", "expected"),
    [
        (EARLIEST, 50, None, 10),
        (LATEST, 50, None, 90),
        (OffsetTarget("offset", 42), 50, None, 42),
        # Offsets outside of the topic are moved to its nearer end.
        (OffsetTarget("offset", 3), 50, None, 10),
        (OffsetTarget("offset", 900), 50, None, 90),
        (OffsetTarget("shift", -20), 50, None, 30),
        (OffsetTarget("shift", 100), 50, None, 90),
        (OffsetTarget("shift", -100), 50, None, 10),
        # A consumer without a committed offset is at the end.
        (OffsetTarget("shift", -20), None, None, 70),
        (OffsetTarget("time", 1_000), 50, 60, 60),
        (OffsetTarget("time", 1_000), 50, None, 90),
        (OffsetTarget("file", plan={PLACE: 77}), 50, None, 77),
        (OffsetTarget("file", plan={PLACE: 7}), 50, None, 10),
    ],
)
def test_target_offsets(
    target: OffsetTarget, committed: int | None, at_time: int | None, expected: int
) -> None:
    """Each kind of target, for a topic with the offsets 10 to 90."""
    assert target_offset(target, PLACE, 10, 90, committed, at_time) == expected


def test_internal_topics() -> None:
    """Kafka's names for topics of this application; those of the user and of other applications
    are excluded."""
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
    # Only the topics that the topology declares, regardless of other groups.
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
    """Reads and writes topics of the user with names like those of internal topics."""
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
def test_user_topics_are_not_deleted(inputs: tuple[str, ...] | None) -> None:
    """Sinks, global topics, inputs that are not reset, dead letters: none belongs to the
    application."""
    users = {f"shop-{name}-changelog" for name in ("rates", "prices", "revenue", "x")}
    users.add("shop-others-repartition")
    own = ["shop-by-word-repartition", "shop-counts-changelog"]
    cluster = [*users, *own, "in", "shop-eu-x-changelog"]

    def matching(pattern: re.Pattern[str]) -> list[str]:
        return [topic for topic in cluster if pattern.fullmatch(topic)]

    request = reset_request(_shop(), SHOP, matching, EARLIEST, inputs=inputs)
    assert users <= set(request.user_topics)
    found = internal_topics(
        "shop", cluster, user_topics=request.user_topics, groups=["shop"], known=request.known
    )
    # A topic of another application without a group on the cluster is not this application's.
    assert (found.own, found.unknown) == (own, ["shop-eu-x-changelog"])


def test_a_file_of_offsets(tmp_path: Path) -> None:
    """A line for each partition; missing and invalid lines are named."""
    file = tmp_path / "plan.csv"
    file.write_text("in,0,5\nin, 1, 7\n\n")
    plan = read_plan(file)
    assert plan == {PLACE: 5, TopicPartition("in", 1): 7}
    target = OffsetTarget("file", plan=plan)
    check_complete(target, list(plan))
    with pytest.raises(ConfigError, match=r"no line for 1 partitions of the input topics: in,2"):
        check_complete(target, [*plan, TopicPartition("in", 2)])
    for text, message in (("in,0\n", "line 1"), ("in,0,-5\n", "line 1"), ("\n", "is empty")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_plan(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path / "nothing")


def test_times() -> None:
    """UTC by default; durations in Java's format."""
    assert time_ms("1970-01-01T00:00:01.500") == 1_500
    assert time_ms("1970-01-01T02:00:00+02:00") == 0
    assert time_ms("1970-01-01T00:00:00Z") == 0
    assert ago_ms("P1DT2H30M", 100_000_000) == 100_000_000 - 95_400_000
    # Exact to the millisecond, although float seconds would be slightly smaller.
    assert time_ms("2038-09-13T16:30:28.844Z") == 2_168_008_228_844
    assert ago_ms("PT1.001S", 0) == -1_001
    with pytest.raises(ConfigError, match="'soon' is not a time"):
        time_ms("soon")
    with pytest.raises(ConfigError, match="'1 day' is not a duration"):
        ago_ms("1 day", 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to-latest", "--shift-by", "3"], "--to-latest and --shift-by cannot be used together"),
        (["--execute", "--dry-run"], "--execute and --dry-run cannot be used together"),
        (["--to-datetime", "soon"], "'soon' is not a time"),
        (["--by-duration", "soon"], "'soon' is not a duration"),
        (["--by-duration", "P1000000000D"], "'P1000000000D' is not a duration"),
    ],
)
def test_invalid_arguments(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are rejected without any request to the cluster."""
    assert main(["reset", "--application-id", "shop", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_times_before_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first record.

    Kafka rejects negative timestamps, except for -1, which means the end.
    """
    targets: list[OffsetTarget] = []

    def planned(_: object, __: object, request: ResetRequest) -> ResetPlan:
        targets.append(request.target)
        raise StreamsError("That is enough.")

    monkeypatch.setattr(reset, "connected_admin", lambda *_: nullcontext())
    monkeypatch.setattr(reset, "plan_reset", planned)
    for words in (
        ["--by-duration", "P36500D"],
        ["--to-datetime", "1969-12-31T23:59:59.999"],
        ["--to-datetime", "1970-01-01T00:00:00.001"],
    ):
        arguments = ["--application-id", "shop", "--bootstrap-servers", "x:1", *words]
        assert main(["reset", *arguments]) == 1
    assert targets == [OffsetTarget("time", 0), OffsetTarget("time", 0), OffsetTarget("time", 1)]


class _EmptyCluster:
    """A cluster without topics and groups."""

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
        # There are no partitions.
        return lambda *_: {}


def test_checkpoints_of_dataframe_functions_are_deleted_with_the_local_state(
    tmp_path: Path,
) -> None:
    """Including a configured directory; those of other applications stay."""
    for folder in ("notes/shop/price", "notes/other/price", "state/shop/dataframes/price"):
        (tmp_path / folder).mkdir(parents=True)
    config = StreamsConfig(
        application_id="shop",
        bootstrap_servers="nowhere:9092",
        state_dir=str(tmp_path / "state"),
        dataframe_checkpoint_dir=str(tmp_path / "notes"),
    )
    cluster: Any = _EmptyCluster()
    plan = plan_reset(cluster, config, ResetRequest((), (), EARLIEST))
    assert plan.checkpoints == tmp_path / "notes" / "shop"
    execute(cluster, config, plan, force=False)
    assert cluster.deleted == ("shop-price-dataframe-input-repartition",)
    assert not (tmp_path / "notes" / "shop").exists()
    assert not (tmp_path / "state" / "shop" / "dataframes").exists()
    assert (tmp_path / "notes" / "other" / "price").exists()
    remote = config.replace(dataframe_checkpoint_dir="hdfs://there/notes")
    assert plan_reset(cluster, remote, ResetRequest((), (), EARLIEST)).checkpoints is None
