"""Faults in DataFrame stages (`dataframes`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_KEEPER = "dataframes/stage_supervisor.py"
_QUERY = "dataframes/stage_query.py"
_KEEPER_TESTS = ("tests/unit/dataframes/test_stage_supervisor.py",)
_QUERY_TESTS = ("tests/unit/dataframes/test_stage_query.py",)

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
        "a query that could not be stopped counts as ended",
        _KEEPER,
        *("        if self._is_stopping:\n", "        if False:\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "records are deleted before their offsets are committed",
        _KEEPER,
        *("if changed and election.commit(changed, query.id):", "if changed:"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "records that could not be deleted count as deleted",
        _KEEPER,
        *("                self._purged.pop(tp, None)\n", ""),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "records are deleted in every round",
        _KEEPER,
        *("        self._purged_ms = now_ms\n", ""),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a failed stage is restarted without a backoff",
        _KEEPER,
        *("self._not_before_ms = self.clock.monotonic_ms() + pause_ms", "self._not_before_ms = 0"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "the handler is called for each broker outage",
        _KEEPER,
        *("if failure.retriable and self._may_retry():", "if False:"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "the duration of an outage includes earlier outages",
        _KEEPER,
        *("            self._retrying_since_ms = None\n", "            pass\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a paused stage continues",
        _KEEPER,
        *('            self._stop()\n            self.tracker.set_state("paused")\n',),
        '            self.tracker.set_state("paused")\n',
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "the position of a stopped query is not stored",
        _KEEPER,
        *("            self._on_progress(self._election, query, progress)\n", "            pass\n"),
        tests=_KEEPER_TESTS,
    ),
    mutant(
        "a query is not stopped if its batch cannot be monitored",
        _QUERY,
        *("            in_time = time.monotonic() < until\n            self._query.stop()\n",),
        "            in_time = time.monotonic() < until\n        self._query.stop()\n",
        tests=_QUERY_TESTS,
    ),
    mutant(
        "a query is stopped after its session has ended",
        _QUERY,
        *("        if not has_jvm(self.session.sparkContext):\n", "        if False:\n"),
        tests=_QUERY_TESTS,
    ),
)
