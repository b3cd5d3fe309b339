"""Faults in DataFrame stages (`structured`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_KEEPER = "structured/keeper.py"
_QUERY = "structured/stage_query.py"
_KEEPER_TESTS = ("tests/unit/structured/test_keeper.py",)
_QUERY_TESTS = ("tests/unit/structured/test_stage_query.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "a stage's query is dropped, not stopped, when its supervision fails",
        _KEEPER,
        *(
            "        try:\n            self._stop()\n",
            "        try:\n            self._query = None\n",
        ),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a stage's query is dropped before Spark has stopped it",
        _KEEPER,
        *("        self._is_stopping = True\n", "        self._query = None\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a query that could not be stopped is taken for one that has ended",
        _KEEPER,
        *("        if self._is_stopping:\n", "        if False:\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "records are deleted whose end the group has not taken",
        _KEEPER,
        *("if news and election.note(news, query.id):", "if news:"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "records that could not be deleted count as deleted",
        _KEEPER,
        *("                self._purged.pop(place, None)\n", ""),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "records are deleted at every round",
        _KEEPER,
        *("        self._purged_ms = now_ms\n", ""),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a stage that fails is started again without a pause",
        _KEEPER,
        *("self._not_before_ms = self._clock.monotonic_ms() + pause_ms", "self._not_before_ms = 0"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "the handler is asked about each outage of the brokers",
        _KEEPER,
        *("if failure.retriable and self._is_patient():", "if False:"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "an outage counts from the first one on, whatever went well since",
        _KEEPER,
        *("            self._trouble_since_ms = None\n", "            pass\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a paused stage goes on",
        _KEEPER,
        *('            self._stop()\n            self.meters.becomes("paused")\n',),
        '            self.meters.becomes("paused")\n',
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "how far a stopped query came is not noted",
        _KEEPER,
        *("            self._finished(self._election, query, progress)\n", "            pass\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a query whose batch cannot be followed is not stopped",
        _QUERY,
        *("            in_time = time.monotonic() < until\n            self._query.stop()\n",),
        "            in_time = time.monotonic() < until\n        self._query.stop()\n",
        tests=_QUERY_TESTS,
    ),
    mutant(
        "a query is asked to stop after its session has ended",
        _QUERY,
        *("        if not has_jvm(self._session.sparkContext):\n", "        if False:\n"),
        tests=_QUERY_TESTS,
    ),
)
