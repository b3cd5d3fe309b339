"""Model inference: score a thousand records in one call.

`map_batches` hands over what is there as columns of Arrow, up to a thousand rows, so numpy, a model
or a GPU has something to work on. Results are those of one record at a time, however records are
cut into batches. The model is loaded on the worker, in the first call: what is shipped is where it
lies. Needs `pip install 'millstream[arrow]' numpy`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

COLUMNS = pa.schema([("amount", pa.float64()), ("age_days", pa.float64())])


class FraudModel:
    """A logistic regression; in your application the path of a file, and what loads it.

    Args:
        weights: of the columns.
        bias: added to their sum.
    """

    def __init__(self, weights: tuple[float, float], bias: float) -> None:
        self.weights, self.bias = weights, bias
        self._loaded: Any = None

    def scores(self, batch: Any) -> Any:
        """The rows' probabilities of fraud, as a column of dicts."""
        if self._loaded is None:
            self._loaded = np.array(self.weights)
        rows = np.column_stack([batch["amount"].to_numpy(), batch["age_days"].to_numpy()])
        probabilities = 1 / (1 + np.exp(-(rows @ self._loaded + self.bias)))
        return {"payment": batch["key"], "fraud": np.round(probabilities, 3)}


def scored() -> Topology:
    """Payments in, probabilities out."""
    builder = StreamsBuilder()
    model = FraudModel((0.01, -0.1), -3.0)
    (
        builder.stream("payments", key=STRING, value=JSON)
        .map_batches(model.scores, schema=COLUMNS, with_key=True, max_records=1_000)
        .to("scores", key=STRING, value=JSON)
    )
    return builder.build()


def test_large_payments_of_new_accounts_are_suspicious() -> None:
    with TopologyTestDriver(scored()) as driver:
        payments = driver.create_input_topic("payments", key=STRING, value=JSON)
        payments.pipe_key_values(
            [("1", {"amount": 900, "age_days": 1}), ("2", {"amount": 20, "age_days": 400})]
        )
        found = driver.create_output_topic("scores", key=STRING, value=JSON).read_values()
    assert found == [{"payment": "1", "fraud": 0.997}, {"payment": "2", "fraud": 0.0}]
