"""The edge to Kafka: everything that speaks to a broker.

Two libraries share the work. librdkafka (confluent-kafka) moves the data: `consumer`, `producer`
and `admin`, with their settings in `client_settings`. kafka-python is the `member` of the consumer
group, because only there can the assignor be ours. `embedded` is a broker of one's own for
development and tests. Nothing above this package knows which library answers; import the modules by
name.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python reads its schemas by functions that are deprecated: 218 warnings at each start,
    # in every test run of the user's.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
