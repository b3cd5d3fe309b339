"""Secrets do not leak."""

from __future__ import annotations

import json
import os
import stat
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.broker.topics import fill, latest, unique
from support.machine.scripts import Program
from support.running import leaky_application
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: Unique strings that can be found anywhere.
PASSWORD, REGISTRY, TOKEN = "pw-7f3a91c4", "reg-5b20e8d7", "tok-c91d44f0"
MARKERS = (PASSWORD, REGISTRY, TOKEN)
_SPARK_PAGES = ("jobs/", "stages/", "storage/", "environment/", "executors/")
_SPARK_ANSWERS = ("jobs", "stages", "environment", "executors", "allexecutors", "storage/rdd")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security_protocol="SASL_SSL", users={"ann": PASSWORD}) as kafka:
        yield kafka


def spark_pages(ui: str) -> Iterator[tuple[str, str]]:
    """Spark's pages, and its REST responses."""

    def read(path: str) -> str:
        with urllib.request.urlopen(f"{ui}/{path}", timeout=30) as answer:
            return str(answer.read().decode(errors="replace"))

    application = json.loads(read("api/v1/applications"))[0]["id"]
    for page in _SPARK_PAGES:
        yield page, read(page)
    for question in _SPARK_ANSWERS:
        yield question, read(f"api/v1/applications/{application}/{question}")


def process_environments(session: int) -> Iterator[tuple[str, str]]:
    """The command lines and environments of the processes of a session."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == session:
                for kind in ("cmdline", "environ"):
                    yield (
                        f"{process}/{kind}",
                        (process / kind).read_bytes().decode(errors="replace"),
                    )
        except (OSError, ProcessLookupError):
            continue


def file_contents(folder: Path) -> Iterator[tuple[str, str]]:
    """All files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes().decode(errors="replace")


def check(found: Iterable[tuple[str, str]]) -> set[str]:
    """Fail if a secret appears; return the checked places."""
    places = set()
    for place, text in found:
        places.add(place)
        secret = [marker for marker in MARKERS if marker in text]
        assert not secret, f"{secret} in {place}"
    return places


def test_no_secret_leaks(secured: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: neither logs, reprs, tracebacks, Spark's pages, REST responses and event log,
    command lines, environments nor files contain a secret, both while the application runs and
    after it has failed."""
    name = unique("secrets")
    secured.create_topic(f"{name}-in")
    secured.create_topic(f"{name}-out")
    settings = {
        "bootstrap": secured.bootstrap_servers,
        "clients": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{_SCRAM} required username="ann" password="{PASSWORD}";',
            "ssl.ca.location": secured.client_settings()["ssl.truststore.location"],
        },
        "registry": f"ann:{REGISTRY}",
        "token_password": TOKEN,
    }
    given = tmp_path / "settings.json"
    given.write_text(json.dumps(settings))
    path = Path(leaky_application.__file__)
    # Spark's temporary files are checked as well.
    home = tmp_path / "temporary"
    home.mkdir()
    temporary = {"TMPDIR": str(home), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={home}"}
    script = Program(sys.executable, path, tmp_path, name, home=home, environment=temporary)
    with script:
        ui = script.wait_for_line("ui ", 90)
        given.unlink()
        fill(secured.unsecured_servers, f"{name}-in", [(None, b"a"), (None, b"b")])
        wait_for(
            lambda: (
                len(latest(secured.unsecured_servers, f"{name}-out")) == 2 or not script.is_running
            ),
            60,
            lambda: f"it counts; {script.errors}",
        )
        script.write_line("")
        script.wait_for_line("printed")
        check(spark_pages(ui))
        assert len(check(process_environments(script.pid))) >= 6, (
            "Python, Java, Spark's daemon, a worker"
        )
        check(file_contents(tmp_path))
        fill(secured.unsecured_servers, f"{name}-in", [(None, b"fail")])
        script.wait_for_line("failed")
        check(spark_pages(ui))
        script.write_line("")
        script.wait_for_line("closed")
        script.wait_ended(60)
        check([("stdout", "\n".join(script.lines)), ("stderr", script.errors)])
        assert "millstream" in script.errors
        assert "ValueError" in script.errors
    checked = check(file_contents(tmp_path))
    assert any("events/" in place for place in checked), checked
    for place in home.rglob("*"):
        mode = stat.S_IMODE(place.stat().st_mode)
        assert not mode & 0o022, f"others can write {place}"
