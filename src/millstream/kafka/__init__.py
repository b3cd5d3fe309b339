"""Kafka: the clients, group membership and administration.

Two libraries share the work. librdkafka (confluent-kafka) carries the records (`clients`) and
queries and changes the cluster (`cluster`). kafka-python is the member of the consumer group
(`membership`), because only it supports a custom assignor; only `kafka_python` uses its internals,
which `kafka_python_compat` checks. `settings` translates the user's settings for both libraries.

The processing loop depends on `protocols` only, so that it runs unchanged on a simulated cluster,
and nothing above this package depends on the library in use; import the modules by name. Errors of
the libraries become Millstream's in `librdkafka_errors`, `clients.producer_errors` and
`membership.member_errors`, with the commands that grant missing permissions (`user_permissions`).
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python loads its schemas with deprecated functions: 218 warnings at each start, in every
    # test run of users.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
