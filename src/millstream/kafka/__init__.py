"""Kafka clients, group membership, and administration.

Two libraries share the work. librdkafka (confluent-kafka) reads and writes records (`clients`) and
queries and changes the cluster (`cluster`). kafka-python implements the membership in the consumer
group (`membership`), because only it supports a custom assignor. Only the module `kafka_python`
uses the internals of that library, which `kafka_python_compat` checks. `settings` translates the
user's settings for both libraries.

The processing loop depends only on `protocols`, so it runs unchanged on a simulated cluster, and no
code above this package depends on the library in use. Import the modules by name. The modules
`librdkafka_errors`, `clients.producer_errors` and `membership.member_errors` convert the libraries'
errors to Millstream's, with the commands that grant missing permissions (`user_permissions`).
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # kafka-python loads its schemas with deprecated functions: 218 warnings at each start, also in
    # the test runs of users.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
