"""Faults in who has which task and its state (`runtime/ownership`, `state/directories`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_TASKS = "runtime/ownership/tasks.py"
_TASK = "runtime/task/stream_task.py"
_RESTORATION = "runtime/ownership/restoration.py"
_GLOBAL = "runtime/ownership/global_updates.py"
_DIRECTORY = "state/directories/locked_directory.py"
_LOCK = "state/directories/file_lock.py"

_UNTRUSTED = ("tests/unit/runtime/ownership/test_untrusted_state.py",)
_OWNED = ("tests/unit/runtime/ownership/test_tasks.py",)
_STANDBY = ("tests/unit/runtime/ownership/test_standby_tasks.py",)
_RESTORED = ("tests/unit/runtime/ownership/test_restoration.py",)
_COPIES = ("tests/unit/runtime/ownership/test_global_updates.py",)
_DIRECTORIES = (
    "tests/unit/state/directories/test_file_lock.py",
    "tests/unit/state/directories/test_state_directory.py",
)

MUTANTS: tuple[Mutant, ...] = (
    # --- tasks that are rebuilt ---
    mutant(
        "a task whose stores cannot be closed stays half closed",
        _TASK,
        "        finally:\n"
        "            # Whatever could not be closed: the task can be opened again.\n"
        '            self._state.transition_to(TaskState.CLOSED, "given up")\n',
        "        finally:\n            pass\n"
        '        self._state.transition_to(TaskState.CLOSED, "given up")\n',
        tests=_UNTRUSTED,
    ),
    mutant(
        "a task is not closed",
        _TASKS,
        "                closing.callback(task.close, clean=clean)\n",
        "",
        tests=_OWNED,
    ),
    mutant(
        "a task whose changelogs cannot be given up stays open",
        _TASKS,
        "                closing.callback(self._restoration.remove, task_id)\n",
        "                self._restoration.remove(task_id)\n"
        "                closing.pop_all()\n                task.close(clean=clean)\n",
        tests=(*_UNTRUSTED, *_OWNED),
    ),
    mutant(
        "corrupt state is used again",
        _TASKS,
        "                task.stores.distrust()\n",
        "                pass\n",
        tests=_UNTRUSTED,
    ),
    mutant(
        "state that is not trusted is used by whoever is next",
        _DIRECTORY,
        "        if self.is_distrusted:\n",
        "        if False:\n",
        tests=_UNTRUSTED,
    ),
    mutant(
        "a standby that is rebuilt becomes active",
        _TASKS,
        "            self._open_later(task, standby=standby)\n        self._sort()\n",
        "            self._open_later(task, standby=False)\n        self._sort()\n",
        tests=(*_STANDBY, *_UNTRUSTED),
    ),
    mutant(
        "a task is rebuilt without an end",
        _TASKS,
        "            if self._revivals[task_id] > _MOST_REVIVALS:\n",
        "            if False:\n",
        tests=(*_OWNED, *_UNTRUSTED),
    ),
    # --- restoring and standbys ---
    mutant(
        "tasks begin before they are restored",
        _TASKS,
        "            and not self._restoration.unfinished(task.task_id)\n",
        "",
        tests=(*_OWNED, *_RESTORED),
    ),
    mutant(
        "a standby that becomes active does not read the rest",
        _TASKS,
        "                task.activate()\n                self._restore(task)\n",
        "                task.activate()\n",
        tests=_STANDBY,
    ),
    mutant(
        "changelogs of a task that has gone are read on",
        _RESTORATION,
        "            self._consumer.unassign(reading)\n        finally:",
        "            pass\n        finally:",
        tests=_RESTORED,
    ),
    # --- global stores ---
    mutant(
        "global stores that cannot be closed are not rebuilt",
        _GLOBAL,
        '            logger.warning("the global stores did not close: %s", error)\n',
        "            raise\n",
        tests=_COPIES,
    ),
    mutant(
        "global stores are used though they are closed",
        _GLOBAL,
        "        self._stage = _Stage.CLOSED\n        with ExitStack",
        "        with ExitStack",
        tests=_COPIES,
    ),
    mutant(
        "global stores that cannot be trusted are read on",
        _GLOBAL,
        "                self._directory.wipe()\n",
        "                pass\n",
        tests=_COPIES,
    ),
    # --- locks of directories ---
    mutant(
        "two processes have the state of one task",
        _LOCK,
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        tests=_DIRECTORIES,
    ),
    mutant(
        "a lock is on a file that was deleted",
        _LOCK,
        "                if self._file.is_current:\n",
        "                if True:\n",
        tests=_DIRECTORIES,
    ),
    mutant(
        "a lock that is refused counts as held",
        _LOCK,
        "        finally:\n            # An open file counts as a lock that is held.\n"
        "            self._file.close()\n        return LockError",
        "        finally:\n            pass\n        self._file.close()\n        return LockError",
        tests=_DIRECTORIES,
    ),
    mutant(
        "a directory that cannot be touched stays locked",
        _DIRECTORY,
        "            finally:\n                self._lock.release()\n",
        "            finally:\n                pass\n            self._lock.release()\n",
        tests=_DIRECTORIES,
    ),
)
