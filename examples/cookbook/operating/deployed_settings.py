"""Settings of a deployment: read a file, the environment and secrets, and log as JSON.

The same program runs on a laptop and in production. The file contains the settings that all
deployments share, the environment those of one deployment: the variable
`MILLSTREAM_COMMIT_INTERVAL_MS` overrides `commit_interval_ms`. The password stays in a mounted
file; the settings refer to it, and it is masked in `repr` and in errors. With
`log_format = "json"`, the driver and the workers write one JSON object per line, with the
application, the stream thread and the task.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import STRING

SETTINGS = """
application_id = "orders"
bootstrap_servers = ["kafka-1:9093", "kafka-2:9093"]
commit_interval_ms = "10s"
log_format = "json"
default_key_serde = "millstream.serdes:STRING"

[clients]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "orders"
sasl.password = "${file:/run/secrets/kafka-password}"

[producer]
compression.type = "zstd"
"""


def topology() -> Topology:
    """Forward orders that are not empty."""
    builder = StreamsBuilder()
    builder.stream("orders", value=STRING).filter(lambda _, order: order != "").to("checked")
    return builder.build()


def config(file: Path) -> StreamsConfig:
    """Read the settings; arguments take precedence over the environment and the file."""
    return StreamsConfig.from_env(file=file, default_value_serde=STRING)


def test_the_environment_overrides_the_file() -> None:
    with TemporaryDirectory() as folder:
        secret, file = Path(folder, "kafka-password"), Path(folder, "orders.toml")
        secret.write_text("s3cret\n")
        file.write_text(SETTINGS.replace("/run/secrets/kafka-password", str(secret)))
        with mock.patch.dict(os.environ, {"MILLSTREAM_COMMIT_INTERVAL_MS": "1s"}):
            settings = config(file)
    assert settings.commit_interval_ms == 1_000
    assert settings.clients["sasl.password"] == "s3cret"
    assert "s3cret" not in repr(settings)


if __name__ == "__main__":
    KafkaStreams(topology(), config(Path(sys.argv[1]))).run()
