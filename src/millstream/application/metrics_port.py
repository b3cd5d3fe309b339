"""The port of an application instance where Prometheus reads its metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.export.prometheus import PrometheusPort
from millstream.metrics.values import Metrics

logger = logging.getLogger("millstream")


class MetricsPort:
    """Open while the application runs, if a port was asked for (`metrics_port`).

    Args:
        config: settings.
        metrics: gives what is told.
    """

    def __init__(self, config: StreamsConfig, metrics: Callable[[], Metrics]) -> None:
        self._config = config
        self._metrics = metrics
        self._open: PrometheusPort | None = None

    @property
    def port(self) -> int | None:
        """The port that is open; None if none is."""
        return None if self._open is None else self._open.port

    def open(self) -> None:
        """Listen, if that was asked for.

        Raises:
            ConfigError: the port cannot be used, or the extra is not installed.
        """
        host, port = self._config.metrics_host, self._config.metrics_port
        if port is None:
            return
        try:
            self._open = PrometheusPort(host, port, self._metrics)
        except OSError as error:
            raise ConfigError(
                f"Metrics cannot be offered at {host}:{port}: {error.strerror or error}. Choose "
                "another metrics_port, 0 for any free one, or an address of this host."
            ) from error
        logger.info("Prometheus finds metrics at http://%s:%d/metrics", host, self._open.port)

    def close(self) -> None:
        """Listen no more."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()
