"""The settings of stream threads that come and go by themselves."""

from __future__ import annotations

from millstream.config_fields import setting
from millstream.config_server import ServerSettings


class ElasticSettings(ServerSettings):
    """How `num_stream_threads=(least, most)` follows the load. Part of `StreamsConfig`."""

    elastic_lag_target_ms: int = setting(
        "elastic.lag.target.ms",
        default=30_000,
        least=1_000,
        doc="Threads are added when what waits in the input topics would take longer than this to "
        "be worked off.",
    )
    elastic_cooldown_ms: int = setting(
        "elastic.cooldown.ms",
        default=120_000,
        least=1_000,
        doc="Threads are removed when fewer would have been enough for as long as this.",
    )
