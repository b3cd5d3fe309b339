"""A secured application as a script that prints everything a user can read from it.

    python leaky_application.py FOLDER NAME

FOLDER holds `settings.json` (see `tests/integration/security/test_secrets.py`); the event log is
written there. Reports each step on stdout, and waits for a line of stdin before the next one.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream import EXACTLY_ONCE_V2, KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.embedded.broker_security import UnsecuredTokens
from millstream.serdes import LONG, STRING

print_line = partial(print, flush=True)


def tokens(password: str, user: str) -> tuple[str, float]:
    """A function with a secret argument, bound by `functools.partial`."""
    assert password
    return UnsecuredTokens(user)()


def topology(name: str) -> Topology:
    """Large enough for Spark to ship it in a file."""
    ballast = random.Random(1).randbytes(2_000_000)

    def counted(value: str) -> str:
        """Fail for one value."""
        if value == "fail":
            raise ValueError(len(ballast))
        return value

    builder = StreamsBuilder()
    (
        builder.stream(f"{name}-in", key=STRING, value=STRING)
        .map_values(counted)
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store="counts")
        .to_stream()
        .to(f"{name}-out", key=STRING, value=LONG)
    )
    return builder.build()


def session(folder: Path) -> SparkSession:
    (folder / "events").mkdir()
    return (
        SparkSession.builder.master("local[4]")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .config("spark.eventLog.compress", "false")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger("millstream").setLevel(logging.DEBUG)
    given: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    by_token = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": partial(tokens, given["token_password"], "ann"),
    }
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=given["bootstrap"],
        state_dir=str(folder / "state"),
        processing_guarantee=EXACTLY_ONCE_V2,
        commit_interval_ms=100,
        clients=given["clients"],
        producer=by_token,
        extra={"schema.registry.basic.auth.user.info": given["registry"]},
    )
    spark = session(folder)
    streams = KafkaStreams(topology(name), config, spark)
    failed = threading.Event()
    streams.set_state_listener(lambda new, _: failed.set() if new.name == "ERROR" else None)
    streams.start()
    print_line("ui", spark.sparkContext.uiWebUrl)
    sys.stdin.readline()
    for each in (config, streams, topology(name), config.client_settings, streams.error):
        print_line(repr(each), str(each))
    try:
        config.replace(commit_interval_ms="no number")
    except Exception:
        traceback.print_exc()
    print_line("printed")
    failed.wait()
    print_line("failed", repr(streams.error))
    traceback.print_exception(streams.error)
    sys.stdin.readline()
    streams.close()
    spark.stop()
    print_line("closed")


if __name__ == "__main__":
    main()
