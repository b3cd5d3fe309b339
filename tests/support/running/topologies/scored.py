"""An application with a DataFrame function and invented metrics, without a broker or Spark."""

from __future__ import annotations

from collections.abc import Mapping

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.dataframes.progress import DATAFRAME_GROUP
from millstream.metrics.values import Metric, Metrics
from millstream.serdes import STRING

ENTRY = "scored-score-dataframe-input-repartition"
EXIT = "scored-score-dataframe-output-repartition"
NUMBERS: Mapping[str, float | str] = {
    "state": "running",
    "batch-id": 7,
    "rows-total": 40_000,
    "rows-rate": 12_500.0,
    "batch-duration-ms": 840,
    "records-lag": 319,
    "restarts-total": 2,
}


class Scored:
    """The application, not started.

    Attributes:
        numbers: the function's metrics; empty before the start.
    """

    def __init__(self, state_dir: str = "nowhere") -> None:
        builder = StreamsBuilder()
        payments = builder.stream("payments", key=STRING, value=STRING)
        payments.transform_dataframe(lambda rows: rows, name="score").to("scores")
        config = StreamsConfig(
            application_id="scored", bootstrap_servers="127.0.0.1:1", state_dir=state_dir
        )
        self.streams = KafkaStreams(builder.build(), config)
        self.numbers: dict[str, float | str] = dict(NUMBERS)
        # Metrics that only a running application has.
        self.streams.metrics = self._metrics  # type: ignore[method-assign]

    def _metrics(self) -> Metrics:
        labels = {"client-id": "scored-1", "dataframe-id": "score"}
        return Metrics(
            [Metric(name, labels, value, DATAFRAME_GROUP) for name, value in self.numbers.items()]
        )
