"""JSON logs of an application on Spark: each line of the driver and of the workers."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from support.broker.topics import fill, latest, unique
from support.machine.scripts import Script
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

APP = """
import asyncio
import logging
import sys

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

NAME = sys.argv[1]
LOGGER = logging.getLogger("shop.orders")


def checked(order):
    LOGGER.info("checking %s", order, extra={"order": order})
    if order == "odd":
        try:
            raise ValueError("an odd order")
        except ValueError:
            LOGGER.exception("%s is not complete", order)
    return order


async def enriched(order):
    await asyncio.sleep(0)
    LOGGER.info("enriching %s", order)
    return order


if __name__ == "__main__":
    builder = StreamsBuilder()
    orders = builder.stream(f"{NAME}-in", key=STRING, value=STRING)
    orders.map_values(checked).map_async(enriched, concurrency=2).to(
        f"{NAME}-out", key=STRING, value=STRING
    )
    # Not the default prefix: a warning about a variable of the tests would precede the JSON lines.
    config = StreamsConfig.from_env("SHOP_", file="app.toml", application_id=NAME)
    KafkaStreams(builder.build(), config).run()
"""

SETTINGS = """
bootstrap_servers = "{bootstrap}"
num_stream_threads = 2
state_dir = "{state}"
log_format = "json"
"""

#: A line of the JVM that Spark starts, before its logging begins.
JVM_LINE = "WARNING: Using incubator modules: jdk.incubator.vector"


def test_all_lines_have_the_same_fields(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: lines of two workers contain the application, the thread and the task, on the stream
    thread and in coroutines; lines of the driver contain the application."""
    name = unique("json")
    for kind in ("in", "out"):
        kafka.create_topic(f"{name}-{kind}", 2)
    orders = ["odd", *(f"order-{number}" for number in range(20))]
    fill(kafka.bootstrap_servers, f"{name}-in", [(o.encode(), o.encode()) for o in orders])
    home = tmp_path / "home"
    home.mkdir()
    (home / "app.toml").write_text(
        SETTINGS.format(bootstrap=kafka.bootstrap_servers, state=tmp_path / "state")
    )
    path = tmp_path / "app.py"
    path.write_text(APP)
    with Script(path, name, home=home) as script:
        wait_for(
            lambda: (
                len(latest(kafka.bootstrap_servers, f"{name}-out")) == len(orders)
                or not script.is_running
            ),
            90,
            lambda: f"processed; {script.errors}",
        )
        script.signal(signal.SIGINT)
        assert script.wait_ended(60) == 0, script.errors
        lines = [line for line in script.errors.splitlines() if line != JVM_LINE]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    check_lines(found, name, len(orders), script.pid)


def check_lines(found: list[dict[str, Any]], name: str, orders: int, driver: int) -> None:
    assert {frozenset(line.keys() - {"order"}) for line in found} == {
        frozenset(found[0].keys() - {"order"})
    }
    assert {line["application"] for line in found} == {name}
    # The instance gets its id from its state directory.
    assert len({line["instance"] for line in found} - {None}) == 1
    workers = [line for line in found if line["process"] != driver]
    assert None not in {line["instance"] for line in workers}
    threads = {f"{name}-StreamThread-{number}" for number in (1, 2)}
    assert {line["thread"] for line in workers} == threads
    users = [line for line in found if line["logger"] == "shop.orders"]
    assert len(users) == 2 * orders + 1
    assert {line["task"] for line in users} == {"0_0", "0_1"}
    for beginning in ("checking", "enriching"):
        lines = [line for line in users if line["message"].startswith(beginning)]
        # Each task runs on one thread.
        assert len({(line["task"], line["thread"]) for line in lines}) == 2
    (failed,) = (line for line in users if line["level"] == "ERROR")
    assert failed["exception"].endswith("ValueError: an odd order")
    (first,) = (line for line in found if "is starting" in line["message"])
    assert first["process"] == driver
    states = [line for line in workers if "to RUNNING" in line["message"] and line["task"]]
    assert {line["task"] for line in states} == {"0_0", "0_1"}
