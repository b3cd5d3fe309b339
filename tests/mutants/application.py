"""Faults in an application and its stream threads (`app`, `application`, `spark`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_STREAM_THREADS = "application/stream_threads.py"
_SUPERVISOR = "application/supervisor.py"
_ENGINE = "spark/engine.py"
_HOSTED = "spark/hosted_thread.py"
_EVENTS = "spark/thread_events.py"
_LOCAL = "spark/sessions/local_session.py"
_START_JOB = 'threading.Thread(target=thread.run, name=f"{name}-job", daemon=True).start()'
_IS_REPORT = 'event.kind == "report"'
_THREADS_TESTS = ("tests/unit/application/test_replacing_threads.py",)
_ENGINE_TESTS = ("tests/unit/spark/test_engine.py",)
_HOSTED_TESTS = ("tests/unit/spark/test_hosted_thread.py",)
_EVENTS_TESTS = ("tests/unit/spark/test_events.py",)
_LOCAL_TESTS = ("tests/unit/spark/sessions/test_local_session.py",)
_USER = "spark/sessions/java_setup.py"
_USER_TESTS = ("tests/unit/spark/sessions/test_driver_user.py",)

_DECISIONS = "application/autoscaling/policy.py"
_DECISIONS_TESTS = ("tests/unit/application/autoscaling/test_policy.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "threads are added for a small lag that only seems constant",
        _DECISIONS,
        *(
            "is_measured = processed >= _MIN_WINDOW_RECORDS or not any(last.lags.values())\n",
            "is_measured = processed >= 0\n",
        ),
        tests=_DECISIONS_TESTS,
    ),
    mutant(
        "a user id without an entry is not logged in to Hadoop",
        _USER,
        *(
            "    users.setLoginUser(users.createRemoteUser(system_user.name()))\n",
            "    del users\n",
        ),
        tests=_USER_TESTS,
    ),
    mutant(
        "Java writes to /tmp although TMPDIR is set",
        _USER,
        *("    if temporary != _JAVA_TMPDIR:\n", "    if not temporary:\n"),
        tests=_USER_TESTS,
    ),
    mutant(
        "each start of a session adds the Java options again",
        _USER,
        *("for option in java_options() if option not in given", "for option in java_options()"),
        tests=_USER_TESTS,
    ),
    mutant(
        "a removed thread is replaced",
        _STREAM_THREADS,
        *(
            "                is_removed = name in self._leaving\n",
            "                is_removed = False\n",
        ),
        tests=_THREADS_TESTS,
    ),
    mutant(
        "a removal continues after the application has ended",
        _STREAM_THREADS,
        *(
            "lambda: self._is_closed or name not in self._leaving",
            "lambda: name not in self._leaving",
        ),
        tests=_THREADS_TESTS,
    ),
    mutant(
        "the index of an ended thread stays in use",
        _STREAM_THREADS,
        *("            self._indexes.pop(name, None)\n", ""),
        tests=_THREADS_TESTS,
    ),
    mutant(
        "the first threads are submitted before all are announced",
        _STREAM_THREADS,
        *('            self._announce(index, "submitted to Spark")\n', "            pass\n"),
        tests=_THREADS_TESTS,
    ),
    mutant(
        "stream threads continue if DataFrame stages cannot be closed",
        _SUPERVISOR,
        *(
            "            finally:\n                # Leaves each thread",
            "            except ZeroDivisionError:\n                pass\n"
            "            else:\n                # Leave",
        ),
        tests=_THREADS_TESTS,
    ),
    mutant(
        "a thread of a paused application does not pause",
        _STREAM_THREADS,
        *("                self._send(name, Pause())\n", "                pass\n"),
        tests=_THREADS_TESTS,
    ),
    mutant(
        "the driver waits ten times as long for a lost connection",
        _ENGINE,
        *("reconnect_ms=3 * grace_ms", "reconnect_ms=30 * grace_ms"),
        tests=_ENGINE_TESTS,
    ),
    mutant(
        "a disconnected thread is killed while it is still working",
        _ENGINE,
        *("reconnect_ms=3 * grace_ms", "reconnect_ms=grace_ms"),
        tests=_ENGINE_TESTS,
    ),
    mutant(
        "a thread that does not run is registered with the engine",
        _ENGINE,
        *(
            f"            {_START_JOB}\n            self._threads[name] = thread\n",
            f"            self._threads[name] = thread\n            {_START_JOB}\n",
        ),
        tests=_ENGINE_TESTS,
    ),
    mutant(
        "a thread is started in a closing engine",
        _ENGINE,
        *("self._server is None or self._jobs is None or self._closed.is_set()",),
        "self._server is None or self._jobs is None",
        tests=_ENGINE_TESTS,
    ),
    mutant(
        "the session is kept after a failed start of the engine",
        _ENGINE,
        *(
            "        except BaseException:\n            found.release()\n",
            "        except BaseException:\n",
        ),
        tests=_ENGINE_TESTS,
    ),
    mutant(
        "a hosted thread never ends if its last step fails",
        _HOSTED,
        *(
            "        finally:\n            # Do this in any case, so that",
            "        except ZeroDivisionError:\n            pass\n"
            "        else:\n            # Do this in any case, so that",
        ),
        tests=_HOSTED_TESTS,
    ),
    mutant(
        "the end of a thread waits for space in the report queue",
        _EVENTS,
        *(f"        if {_IS_REPORT}:\n            with self._room:\n                self._room.w",),
        "        if True:\n            with self._room:\n                self._room.w",
        tests=_EVENTS_TESTS,
    ),
    mutant(
        "a report waits for space in a closed queue",
        _EVENTS,
        *("lambda: self._is_closed or self._reports < _MAX_PENDING_REPORTS",),
        "lambda: self._reports < _MAX_PENDING_REPORTS",
        tests=_EVENTS_TESTS,
    ),
    mutant(
        "a session never ends if its stop fails",
        _LOCAL,
        *(
            "        finally:\n            # The next session",
            "        except ZeroDivisionError:\n            pass\n"
            "        else:\n            # The next",
        ),
        tests=_LOCAL_TESTS,
    ),
)
