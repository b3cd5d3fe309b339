"""`millstream topics`, `lag` and `reset` on a real broker, with an application that has run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from support.broker.topics import fill, group_members, latest, read_all, topic_names, unique
from support.running.thread_run import run_to_end
from support.tasks.served_tasks import ServedTasks
from support.waiting import wait_for

from millstream import StreamsConfig
from millstream.cli import main
from millstream.cli.cluster_options import connected_admin
from millstream.cli.programs.topologies import load_program
from millstream.errors import StreamsError
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.server.server_settings import ServerOptions
from millstream.server.server_thread import HttpServer
from millstream.testing import EmbeddedKafka
from millstream.tools.application_reset import EARLIEST, ResetRequest, execute, plan_reset

TOKEN = "a-token-for-tests"

_PROGRAM = """
from millstream import StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING

def topology():
    builder = StreamsBuilder()
    lines = builder.stream("{name}-lines", key=STRING, value=STRING)
    # Written and read again under a name of the user's.
    lines.to("{name}-passed")
    (
        builder.stream("{name}-passed", key=STRING, value=STRING)
        .group_by(lambda _, word: word, key=STRING, value=STRING, name="by-word")
        .count(store="counts")
        .to_stream()
        .to("{name}-counts", key=STRING, value=LONG)
    )
    return builder.build()

config = StreamsConfig(
    application_id="{name}",
    bootstrap_servers="{servers}",
    state_dir="{state}",
    commit_interval_ms=100,
)
"""
WORDS = 40


class Shop:
    """An application as a program, and its topics on a broker."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("cli")
        self.servers = kafka.bootstrap_servers
        file = folder / "app.py"
        state = folder / "state"
        file.write_text(_PROGRAM.format(name=self.name, servers=self.servers, state=state))
        self.program = str(file)
        self.state = state / self.name

    def run(self) -> None:
        """Run until all of its input is counted and committed."""
        found = load_program(self.program)
        assert isinstance(found.config, StreamsConfig)
        inputs = [f"{self.name}-{topic}" for topic in ("lines", "passed", "by-word-repartition")]
        run_to_end(found.topology, found.config, inputs)

    def counts(self) -> dict[bytes | None, int]:
        """The last count of each word."""
        newest = latest(self.servers, f"{self.name}-counts")
        return {word: int.from_bytes(count or b"") for word, count in newest.items()}


@pytest.fixture
def shop(kafka: EmbeddedKafka, tmp_path: Path) -> Shop:
    return Shop(kafka, tmp_path)


@pytest.fixture
def run_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Run a command with --json; return its exit code and document."""

    def run_command(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run_command


RunJson = Callable[..., tuple[int, Any]]


def test_topics_of_tables_are_created_compacted(
    kafka: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: topics that --create has created for tables do not lose rows after their retention."""
    name, program = unique("tables"), tmp_path / "app.py"
    program.write_text(
        "from millstream import StreamsBuilder\n"
        "from millstream.serdes import STRING\n"
        "builder = StreamsBuilder()\n"
        f"customers = builder.table('{name}-customers', key=STRING, value=STRING)\n"
        f"builder.global_table('{name}-towns', key=STRING, value=STRING, store='towns')\n"
        f"builder.stream('{name}-orders', key=STRING, value=STRING).to('{name}-placed')\n"
        "topology = builder.build()\n"
    )
    servers = kafka.bootstrap_servers
    where = ["--bootstrap-servers", servers, "--application-id", name]
    assert main(["topics", str(program), "--create", *where]) == 0
    errors = capsys.readouterr().err
    assert (
        f"created {name}-towns with 1 partition, compacted because it is the topic of a table"
        in errors
    )
    assert f"created {name}-orders with 1 partition\n" in errors
    admin = ClusterAdmin({"bootstrap.servers": servers})
    topics = {f"{name}-{each}" for each in ("customers", "towns", "orders", "placed")}
    found = {topic: each["cleanup.policy"] for topic, each in admin.topic_configs(topics).items()}
    admin.close()
    assert {topic for topic, policy in found.items() if policy == "compact"} == {
        f"{name}-customers",
        f"{name}-towns",
    }
    assert found.keys() == topics


def test_the_life_of_an_application_from_topics_to_reset(
    shop: Shop, run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics are missing and created; the application runs; its lag is 0; it is reset and starts
    again."""
    code, document = run_json("topics", shop.program)
    problems = {each["name"]: each["problem"] for each in document["topics"]}
    assert code == 1
    assert problems[f"{shop.name}-lines"] == "missing"
    assert problems[f"{shop.name}-counts-changelog"] is None
    assert main(["topics", shop.program, "--create", "--partitions", "2"]) == 0
    assert "created" in capsys.readouterr().err

    fill(shop.servers, f"{shop.name}-lines", [(None, b"tea")] * WORDS)
    shop.run()
    assert shop.counts() == {b"tea": WORDS}
    code, document = run_json("lag", shop.program, "--most", "0")
    assert (code, document["total"], document["stores"]) == (0, 0, None)
    # Without the program, from the group's committed offsets.
    code, other = run_json(
        "lag", "--application-id", shop.name, "--bootstrap-servers", shop.servers
    )
    known = [each for each in document["partitions"] if each["committed"] is not None]
    assert other["partitions"] == known
    assert {each["topic"] for each in known} == {
        f"{shop.name}-{topic}" for topic in ("lines", "passed", "by-word-repartition")
    }
    fill(shop.servers, f"{shop.name}-lines", [(None, b"tea")] * 3)
    code, document = run_json("lag", shop.program, "--most", "2")
    assert (code, document["total"]) == (1, 3)
    with ServedTasks() as served:
        serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
        where = ["--url", f"http://127.0.0.1:{serving.port}", "--token", TOKEN]
        try:
            at = {"current_offset": 40, "end_offset": 42, "lag": 2}
            _, document = run_json("lag", shop.program, *where)
            assert document["stores"] == [{"store": "counts", "partition": 0, **at}]
            assert main(["lag", shop.program, *where]) == 0
        finally:
            serving.close()
        assert capsys.readouterr().out.splitlines()[-1].split() == ["counts", "0", "40", "42", "2"]

    internal = {f"{shop.name}-by-word-repartition", f"{shop.name}-counts-changelog"}
    code, plan = run_json("reset", shop.program)
    assert (code, plan["executed"], set(plan["deleted_topics"])) == (0, False, internal)
    offsets = {(each["topic"], each["partition"]): each["offset"] for each in plan["offsets"]}
    assert offsets[f"{shop.name}-lines", 0] == offsets[f"{shop.name}-lines", 1] == 0
    # Its own output will be written again.
    passed = [each for each in plan["offsets"] if each["topic"] == f"{shop.name}-passed"]
    assert sum(each["offset"] for each in passed) == WORDS
    assert plan["local_state"] == str(shop.state)
    assert internal <= topic_names(shop.servers), "a dry run must not change anything"
    assert shop.state.exists()

    code, _ = run_json("reset", shop.program, "--execute")
    assert code == 0
    wait_for(lambda: not internal & topic_names(shop.servers), 30, "the topics are deleted")
    assert not shop.state.exists()
    shop.run()
    # Counted again from zero.
    assert shop.counts() == {b"tea": WORDS + 3}


def test_a_reset_does_not_touch_user_topics(
    shop: Shop, run_json: RunJson, kafka: EmbeddedKafka
) -> None:
    """Sinks, global topics and topics of others still exist, whatever their names."""
    text = Path(shop.program).read_text()
    rates, revenue = f"{shop.name}-rates-changelog", f"{shop.name}-revenue-changelog"
    text = text.replace(
        "    return", f"    builder.global_table('{rates}', key=STRING)\n    return"
    )
    Path(shop.program).write_text(text.replace(f'"{shop.name}-counts"', f'"{revenue}"'))
    other = f"{shop.name}-eu-x-changelog"
    internal = {f"{shop.name}-by-word-repartition", f"{shop.name}-counts-changelog"}
    assert main(["topics", shop.program, "--create", "--partitions", "1"]) == 0
    for topic in (*internal, other):
        kafka.create_topic(topic)
    code, plan = run_json("reset", shop.program)
    assert (code, set(plan["deleted_topics"])) == (0, internal)
    assert plan["unknown_topics"] == [other]
    assert run_json("reset", shop.program, "--execute")[0] == 0
    wait_for(lambda: not internal & topic_names(shop.servers), 30, "the topics are deleted")
    assert {rates, revenue, other} <= topic_names(shop.servers)
    # Topics of an older version are recognized by their names.
    code, plan = run_json("reset", shop.program, "--internal-topics", other)
    assert (code, plan["deleted_topics"], plan["unknown_topics"]) == (0, [other], [])
    assert main(["reset", shop.program, "--internal-topics", rates]) == 1


def test_offset_targets(shop: Shop, run_json: RunJson, tmp_path: Path) -> None:
    """Each form of the option, with the broker's result."""
    lines = f"{shop.name}-lines"
    assert main(["topics", shop.program, "--create", "--partitions", "1"]) == 0
    fill(shop.servers, lines, [(None, b"x")] * 10)
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{lines},0,6\n")
    start = ["reset", "--application-id", shop.name, "--bootstrap-server", shop.servers]
    start += ["--input-topics", lines, "--execute"]
    for words, expected in (
        (["--to-offset", "4"], 4),
        (["--shift-by", "3"], 7),
        (["--shift-by", "-5"], 2),
        (["--to-latest"], 10),
        (["--from-file", str(plan)], 6),
        (["--to-datetime", "2000-01-01T00:00:00"], 0),
        (["--by-duration", "PT0S"], 10),
        ([], 0),
    ):
        code, document = run_json(*start, *words)
        assert (code, document["offsets"][0]["offset"]) == (0, expected), words
        _, lag = run_json("lag", "--application-id", shop.name, "--bootstrap-server", shop.servers)
        assert [each["committed"] for each in lag["partitions"]] == [expected]
    code, document = run_json(*start, "--intermediate-topics", f"{shop.name}-nothing")
    assert (code, document["topics_not_found"]) == (1, [f"{shop.name}-nothing"])


@contextmanager
def member(shop: Shop) -> Iterator[Consumer]:
    """An inactive member of the application's group."""
    consumer = Consumer(
        {
            "bootstrap.servers": shop.servers,
            "group.id": shop.name,
            "auto.offset.reset": "earliest",
            "client.id": "left-over",
        }
    )
    consumer.subscribe([f"{shop.name}-lines"])
    try:
        wait_for(lambda: consumer.poll(0.1) is not None, 30, "the member has joined")
        yield consumer
    finally:
        consumer.close()


def test_nothing_is_reset_while_the_group_has_members(
    shop: Shop, run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reset is rejected with the members; --force removes them first."""
    assert main(["topics", shop.program, "--create", "--partitions", "1"]) == 0
    fill(shop.servers, f"{shop.name}-lines", [(None, b"x")] * 5)
    with member(shop) as consumer:
        _, lag = run_json("lag", shop.program)
        readers = {each["reader"] for each in lag["partitions"]}
        assert "left-over" in readers
        consumer.commit(asynchronous=False)
        for words in ([], ["--execute"]):
            assert main(["reset", shop.program, *words]) == 1
            assert "has 1 member: left-over on 127.0.0.1" in capsys.readouterr().err
        assert group_members(shop.servers, shop.name) == 1
        assert main(["reset", shop.program, "--execute", "--force", "--to-offset", "2"]) == 0
        assert group_members(shop.servers, shop.name) == 0
    _, lag = run_json("lag", shop.program)
    committed = {each["topic"]: each["committed"] for each in lag["partitions"]}
    assert committed[f"{shop.name}-lines"] == 2


def test_nothing_is_deleted_if_an_instance_joins_in_the_meantime(
    shop: Shop, run_json: RunJson, kafka: EmbeddedKafka
) -> None:
    """If no offsets are to be set, the cluster rejects nothing: the members are looked up again."""
    internal = f"{shop.name}-counts-changelog"
    for topic in (internal, f"{shop.name}-lines"):
        kafka.create_topic(topic)
    config = StreamsConfig(application_id=shop.name, bootstrap_servers=shop.servers)
    with connected_admin(GroupAdmin, config) as admin:
        plan = plan_reset(admin, config, ResetRequest((), (), EARLIEST, with_state=False))
        assert (plan.members, plan.offsets, plan.deleted) == ((), (), (internal,))
        for force in (False, True):
            fill(shop.servers, f"{shop.name}-lines", [(None, b"x")])
            with member(shop), pytest.raises(StreamsError, match="has 1 member: left-over"):
                execute(admin, config, plan, force=force)
            assert internal in topic_names(shop.servers)
        execute(admin, config, plan, force=False)
    wait_for(lambda: internal not in topic_names(shop.servers), 30, "the topic is deleted")


@pytest.mark.extended
def test_an_upgrade_is_checked_against_the_cluster(
    shop: Shop, run_json: RunJson, tmp_path: Path
) -> None:
    """An internal topic that was created for fewer partitions than the input has now."""
    assert main(["topics", shop.program, "--create", "--partitions", "1"]) == 0
    fill(shop.servers, f"{shop.name}-lines", [(None, b"tea")])
    shop.run()
    words = ["upgrade-check", shop.program, shop.program]
    where = ["--bootstrap-servers", shop.servers]
    assert run_json(*words, *where)[0] == 0
    newer = tmp_path / "newer.py"
    text = Path(shop.program).read_text()
    newer.write_text(text.replace(f"{shop.name}-lines", f"{shop.name}-others"))
    code, document = run_json(*words[:2], str(newer), *where)
    broken = {each["name"] for each in document["findings"] if each["level"] == "breaks"}
    assert (code, broken) == (1, {f"{shop.name}-others"})
    assert read_all(shop.servers, f"{shop.name}-counts") != []
