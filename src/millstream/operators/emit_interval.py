"""How often results that wait for a window to end are looked for: an internal setting."""

from __future__ import annotations

from typing import Final

from millstream.config import StreamsConfig

#: Kafka Streams' internal settings, in milliseconds. `TopologyTestDriver` sets both to 0.
WINDOW_CLOSE_INTERVAL: Final = "__emit.interval.ms.kstreams.windowed.aggregation__"
OUTER_JOIN_INTERVAL: Final = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"

_DEFAULT_MS: Final = 1_000


def emit_interval_ms(config: StreamsConfig, setting: str) -> int:
    """The least wall-clock time between two searches, in milliseconds.

    Args:
        config: the application's settings.
        setting: one of the two above.
    """
    return int(config.extra.get(setting, _DEFAULT_MS))
