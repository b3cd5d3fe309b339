"""Model inference: score a thousand records in one call.

`map_batches` passes the available records as Arrow columns, up to a thousand rows, so that numpy, a
model or a GPU can process them together. The result of a row must not depend on other rows, because
batches vary in size. Load a model in the first call, on the worker, so that only its location
is shipped. Requires `pip install 'millstream[arrow]' numpy`.
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
    """A logistic regression. A real application would load a model from a file.

    Args:
        weights: one for each column.
        bias: added to the weighted sum.
    """

    def __init__(self, weights: tuple[float, float], bias: float) -> None:
        self.weights, self.bias = weights, bias
        self._loaded: Any = None

    def scores(self, batch: Any) -> Any:
        """Return the probability of fraud for each row."""
        if self._loaded is None:
            self._loaded = np.array(self.weights)
        rows = np.column_stack([batch["amount"].to_numpy(), batch["age_days"].to_numpy()])
        probabilities = 1 / (1 + np.exp(-(rows @ self._loaded + self.bias)))
        return {"payment": batch["key"], "fraud": np.round(probabilities, 3)}


def scored() -> Topology:
    """Compute the probability of fraud for each payment."""
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
