"""A new user's first steps: nine expectations of the first five minutes, each tested in an empty
environment with the wheel as it would be released."""

from __future__ import annotations

import json
import re
import shutil
import signal
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.broker.topics import fill, read_all
from support.machine.clean_environment import CleanEnvironment, create_environment, without_java
from support.machine.ports import free_port
from support.machine.wheels import ROOT, built_here
from support.waiting import wait_for

from millstream.embedded.jars import broker_jars, cache_folder
from millstream.embedded.java import find_java
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
#: The maximum output of a failed script: its line, the line that raised the error, the message.
LINES_OF_AN_ERROR = 8
#: The topics of README's program, and two that cannot be joined.
TOPICS = {"lines": 2, "word-counts": 2, "joined": 3, "joined-lines": 2}
TIMES = ROOT / "build" / "first-minutes.md"


@pytest.fixture(scope="module", autouse=True)
def _table() -> None:
    """Start a new table for each run."""
    TIMES.parent.mkdir(exist_ok=True)
    TIMES.write_text("| Point | Action | Time |\n|---|---|---|\n")


def note(point: int, action: str, seconds: float) -> None:
    """Add a row to the table."""
    with TIMES.open("a") as table:
        table.write(f"| {point} | {action} | {seconds:.1f} s |\n")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return built_here(tmp_path_factory.mktemp("dist")).wheel


@pytest.fixture(scope="module")
def small(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanEnvironment]:
    """An environment with the wheel without extras, and only wheels of dependencies: no Spark."""
    folder = tmp_path_factory.mktemp("small")
    yield create_environment(folder, ["--only-binary", ":all:", str(wheel), "pytest"])
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanEnvironment]:
    """An environment that can run applications."""
    folder = tmp_path_factory.mktemp("whole")
    yield create_environment(folder, [f"{wheel}[spark,server]", "pytest"])
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """A broker at the port in README's examples."""
    with EmbeddedKafka(port=9092) as broker:
        for topic, partitions in TOPICS.items():
            broker.create_topic(topic, partitions)
        yield broker


def first_program() -> str:
    """The first Python block of README."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def _count(kafka: EmbeddedKafka, topic: str) -> int:
    """The number of records in a topic."""
    return len(read_all(kafka.bootstrap_servers, topic))


# 1. Installation from wheels only; the first steps need no Java.


def test_installing_needs_no_compiler_and_no_java(small: CleanEnvironment, tmp_path: Path) -> None:
    """Point 1: topologies can be written, described and tested with the wheel alone."""
    note(1, "`pip install millstream`, in an empty environment", small.installed_s)
    output = small.run("python", "-m", "pip", "list", "--format=json").stdout
    assert "pyspark" not in {each["name"].lower() for each in json.loads(output)}
    (small.folder / "app.py").write_text(
        first_program().replace("KafkaStreams(builder", "0 and (builder")
    )
    bare = CleanEnvironment(small.folder, without_java(small.environment, tmp_path / "bin"), 0)
    described = bare.run("millstream", "describe", "app.py")
    assert described.returncode == 0, described.stderr
    assert "counts-repartition" in described.stdout


# 2. A demo.


def test_the_demo_works(whole: CleanEnvironment) -> None:
    """Point 2: one command, without Kafka, with a verified result and a console."""
    note(1, "`pip install 'millstream[spark,server]'`", whole.installed_s)
    began = time.monotonic()
    with whole.program("millstream", "demo", "--orders", "20000") as demo:
        assert demo.wait_ended(180) == 0, demo.errors
        output = demo.errors
    note(2, "`millstream demo --orders 20000`, including shutdown", time.monotonic() - began)
    assert "every total is correct" in output
    assert "http://127.0.0.1:" in output


def test_the_demo_downloads_spark(small: CleanEnvironment, tmp_path: Path) -> None:
    """Point 2 with the wheel alone, on a machine without Java: missing requirements are downloaded
    once, with a message."""
    environment = without_java(small.environment, tmp_path / "bin")
    environment["MILLSTREAM_CACHE"] = str(tmp_path / "cache")
    bare = CleanEnvironment(small.folder, environment, 0)
    # The downloaded Java only trusts public certificates, so it may not trust a mirror.
    broker_jars(find_java())
    jars = cache_folder()
    shutil.copytree(jars, tmp_path / "cache" / jars.name)
    for expected in (True, False):
        began = time.monotonic()
        with bare.program("millstream", "demo", "--orders", "2000") as demo:
            assert demo.wait_ended(300) == 0, demo.errors
            output = demo.errors
        which = "the first time, with downloads of Spark and Java" if expected else "again"
        note(2, f"`millstream demo --orders 2000` without Java, {which}", time.monotonic() - began)
        assert ("Spark and Java not found: downloading" in output) is expected
        assert "every total is correct" in output
        assert "http://127.0.0.1:" in output
    assert small.run("python", "-c", "import pyspark").returncode != 0
    shutil.rmtree(tmp_path / "cache")


# 3. Fifteen lines of README.


def test_the_first_program_of_readme(whole: CleanEnvironment, kafka: EmbeddedKafka) -> None:
    """Point 3: it reads from the beginning, Ctrl-C ends it with a commit, and it resumes."""
    fill(kafka.bootstrap_servers, "lines", [(None, b"to be or not to be")])
    (whole.folder / "first.py").write_text(first_program())
    for expected, more, where in (
        (4, [(None, b"to sleep")], r"lines-\d from earliest"),
        (6, [], r"lines-\d from [1-9]"),
    ):
        counted = partial(lambda minimum: _count(kafka, "word-counts") >= minimum, expected)
        began = time.monotonic()
        with whole.program("python", "first.py") as running:
            wait_for(counted, 90, lambda: running.errors[-2_000:])
            note(3, "`python app.py` to its first results", time.monotonic() - began)
            wait_for(lambda: "is RUNNING after" in running.errors, 30, lambda: running.errors)
            began = time.monotonic()
            running.signal(signal.SIGINT)
            assert running.wait_ended(30) == 0, running.errors
            note(3, "Ctrl-C until the end", time.monotonic() - began)
            assert re.search(where, running.errors), running.errors
            assert "everything committed" in running.errors
        fill(kafka.bootstrap_servers, "lines", more)


# 4. A hundred concurrent calls.


def test_a_hundred_concurrent_calls(whole: CleanEnvironment) -> None:
    """Point 4: the example program in README works in this environment."""
    program = ROOT / "examples" / "async-enrichment" / "async_enrichment.py"
    with whole.program("python", program, "--demo") as demo:
        assert demo.wait_ended(180) == 0, demo.errors
    found = re.search(r"(\d+) times as fast on one partition", "\n".join(demo.lines))
    assert found is not None
    assert int(found[1]) > 10


# 5. A store over HTTP.


def test_a_store_is_queried_over_http(whole: CleanEnvironment, kafka: EmbeddedKafka) -> None:
    """Point 5: the response contains the count of a word, and the instance that answered."""
    port = free_port()
    for topic in ("queried-lines", "queried-counts"):
        kafka.create_topic(topic, 2)
    fill(kafka.bootstrap_servers, "queried-lines", [(None, b"hello hello")])
    program = (
        first_program()
        .replace('"lines"', '"queried-lines"')
        .replace('"word-counts"', '"queried-counts"')
    )
    program = program.replace(
        'application_id="word-count"',
        f'application_id="queried", server_port={port}, server_token="a-token-to-try"',
    )
    (whole.folder / "queried.py").write_text(program)

    def answer() -> object:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/stores/counts/keys/hello")
        request.add_header("Authorization", "Bearer a-token-to-try")
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return json.load(response)
        except OSError:
            return {}

    with whole.program("python", "queried.py") as running:
        wait_for(lambda: answer().get("value") == 2, 90, lambda: running.errors[-2_000:])  # type: ignore[attr-defined]
        assert {"partition", "host", "position"} <= answer().keys()  # type: ignore[attr-defined]


# 6. A unit test.


def test_a_topology_is_tested_in_milliseconds(small: CleanEnvironment) -> None:
    """Point 6: pytest with the included fixture, with simulated time and without Java."""
    (small.folder / "test_counts.py").write_text(
        textwrap.dedent(
            """
            from millstream import StreamsBuilder
            from millstream.serdes import LONG, STRING


            def test_counts(topology_driver):
                builder = StreamsBuilder()
                stream = builder.stream("words", key=STRING, value=STRING)
                stream.group_by_key().count(store="counts").to_stream().to("counts", value=LONG)
                driver = topology_driver(builder.build())
                words = driver.create_input_topic("words", key=STRING, value=STRING)
                words.pipe_input("be", "", timestamp=1_000)
                words.pipe_input("be", "", timestamp=2_000)
                counts = driver.create_output_topic("counts", key=STRING, value=LONG)
                assert [each.timestamp for each in counts.read_records()] == [1_000, 2_000]
            """
        )
    )
    ran = small.run("python", "-m", "pytest", "-q", "test_counts.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    took = re.search(r"1 passed in ([\d.]+)s", ran.stdout)
    assert took is not None, ran.stdout
    note(6, "`pytest` of a topology, as pytest reports it", float(took[1]))


# 7. Mistakes.

MISTAKES = {
    "a missing serde": (
        {'stream("lines", key=STRING, value=STRING)': 'stream("lines")'},
        r"There is no key serde: .*\(for example key=millstream.serdes.STRING\).*app.py:\d+",
    ),
    "a missing topic": (
        {'"lines"': '"no-such-topic"'},
        r"reads 'no-such-topic', which the cluster does not have.*millstream topics",
    ),
    "unequal numbers of partitions": (
        {
            ".flat_map_values": '.join(builder.table("joined", key=STRING, value=STRING), '
            "lambda line, _: line)\n    .flat_map_values",
            '"lines"': '"joined-lines"',
        },
        r"Cannot join by key: 'joined' has 3, 'joined-lines' has 2 partitions.*repartition\(",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_have_short_error_messages(
    mistake: str, whole: CleanEnvironment, kafka: EmbeddedKafka
) -> None:
    """Point 7: the error names the problem and the solution, without a long traceback."""
    changes, message = MISTAKES[mistake]
    program = first_program()
    for old, new in changes.items():
        assert old in program
        program = program.replace(old, new)
    (whole.folder / "app.py").write_text(program)
    began = time.monotonic()
    ran = whole.run("millstream", "run", "app.py", timeout_s=60)
    note(7, f"{mistake}: until the error", time.monotonic() - began)
    assert ran.returncode != 0
    lines = [line for line in ran.stderr.splitlines() if not line.startswith("millstream: ")]
    assert re.search(message, lines[-1]), ran.stderr
    assert len(lines) <= LINES_OF_AN_ERROR, ran.stderr


def test_an_unavailable_broker(whole: CleanEnvironment) -> None:
    """Point 7: the program waits for the broker, and logs a warning with advice."""
    (whole.folder / "app.py").write_text(first_program().replace("localhost:9092", "localhost:1"))
    began = time.monotonic()
    with whole.program("millstream", "run", "app.py") as run:
        wait_for(lambda: "waiting for a broker" in run.errors, 30, lambda: run.errors)
        note(7, "an unavailable broker: until the warning", time.monotonic() - began)
        assert re.search(r"at localhost:1.*refused.*Is bootstrap_servers right\?", run.errors)
        run.signal(signal.SIGINT)
        assert run.wait_ended(30) == 0, run.errors


def test_without_spark_the_error_has_the_install_command(
    small: CleanEnvironment, kafka: EmbeddedKafka
) -> None:
    """Point 7: the most common first mistake."""
    (small.folder / "app.py").write_text(first_program())
    ran = small.run("millstream", "run", "app.py", timeout_s=60)
    assert ran.returncode != 0
    assert "pip install 'millstream[spark]'" in ran.stderr.splitlines()[-1], ran.stderr
    assert len(ran.stderr.splitlines()) <= LINES_OF_AN_ERROR + 1, ran.stderr


def test_without_java_the_error_has_the_install_command(
    whole: CleanEnvironment, tmp_path: Path
) -> None:
    """Point 7: there is no Java."""
    environment = without_java(whole.environment, tmp_path / "bin")
    ran = CleanEnvironment(whole.folder, environment, 0).run("millstream", "broker", timeout_s=60)
    assert ran.returncode != 0
    assert "pip install 'millstream[java]'" in ran.stderr, ran.stderr
    assert len(ran.stderr.splitlines()) == 1


# 8. The same file with other Spark masters.


def test_the_same_file_on_another_master(whole: CleanEnvironment, kafka: EmbeddedKafka) -> None:
    """Point 8: `run --spark` and `spark-submit` run the file unchanged."""
    for number, command in enumerate(
        (
            ("millstream", "run", "submitted.py", "--spark", "local[4]"),
            ("spark-submit", "--master", "local[4]", "submitted.py"),
        )
    ):
        lines, counts = f"submitted-{number}", f"submitted-counts-{number}"
        kafka.create_topic(lines, 2)
        kafka.create_topic(counts, 2)
        fill(kafka.bootstrap_servers, lines, [(None, b"to be or not to be")])
        program = (
            first_program().replace('"lines"', f'"{lines}"').replace('"word-counts"', f'"{counts}"')
        )
        program = program.replace(
            'application_id="word-count"', f'application_id="submitted-{number}"'
        )
        (whole.folder / "submitted.py").write_text(program)
        with whole.program(*command) as running:
            wait_for(
                partial(lambda topic: _count(kafka, topic) >= 4, counts),
                120,
                lambda: running.errors[-2_000:],
            )
            # spark-submit writes its program's stderr to stdout.
            output = partial(lambda it: it.errors + "\n".join(it.lines), running)
            wait_for(partial(lambda it: "on Spark local[4]:" in it(), output), 30, output)
            running.signal(signal.SIGINT)
            code = running.wait_ended(60)
            # The exit code of spark-submit, a Java program, is the signal's.
            assert code == 0 or command[0] == "spark-submit", output()


# 9. README.


def test_the_first_lines_of_readme_describe_the_project() -> None:
    """Point 9: purpose, limits, guarantees, performance, license, maintainers, alternatives."""
    text = README.read_text()
    head = text[: text.index("\n## Try it")]
    for word in (
        "Kafka Streams",
        "Python",
        "Spark",
        "exactly",
        "times the throughput",
        "Apache",
        "not a fit for",
    ):
        assert word.lower() in head.lower(), word
    for name in ("kafka-streams", "faust", "quix-streams"):
        assert f"docs/coming-from/{name}.md" in text
