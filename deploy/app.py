"""Counts the words in a topic; deployed by the other files in this folder.

    spark-submit ... app.py application.properties

Settings are read from a file with Kafka's dotted names, so that they can change independently of
the program. The token of the HTTP server is a secret and comes from the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING


def topology() -> Topology:
    """Build a topology that writes the latest count of each word."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", key=STRING, value=STRING)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store="counts")
        .to_stream()
        .to("word-counts", key=STRING, value=LONG)
    )
    return builder.build()


def properties(text: str) -> dict[str, str]:
    """Parse a simple Java properties file: name=value lines and comments."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def config(text: str, environment: Mapping[str, str]) -> StreamsConfig:
    """Combine the settings of the file and the secrets of the environment."""
    settings = StreamsConfig.from_properties(properties(text))
    token = environment.get("SERVER_TOKEN")
    return settings if token is None else settings.replace(server_token=token)


def main() -> int:
    settings = config(Path(sys.argv[1]).read_text(), os.environ)

    KafkaStreams(topology(), settings).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
