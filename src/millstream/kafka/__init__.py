"""The edge to Kafka: everything that speaks to a broker.

Two libraries share the work. librdkafka (confluent-kafka) carries the records (`data`) and asks and
changes the cluster (`cluster`). kafka-python is the `member` of the consumer group, because only
there can the assignor be ours; `kafka_python` is all that knows it from within. `settings` tells
both libraries what the user set. The processing loop knows all of them by `protocols` only, and
nothing above this package knows which library answers; import the modules by name.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas by functions that are deprecated: 218 warnings at each start,
    # in every test run of the user's.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
