"""Faults in the ownership of tasks and state (`runtime/task_management`, `state/directories`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_TASKS = "runtime/task_management/task_manager.py"
_TASK = "runtime/task/stream_task.py"
_RESTORATION = "runtime/task_management/restoration.py"
_GLOBAL = "runtime/task_management/global_store_updater.py"
_DIRECTORY = "state/directories/locked_directory.py"
_LOCK = "state/directories/file_lock.py"

_UNTRUSTED = ("tests/unit/runtime/task_management/test_untrusted_state.py",)
_OWNED = ("tests/unit/runtime/task_management/test_tasks.py",)
_STANDBY = ("tests/unit/runtime/task_management/test_standby_tasks.py",)
_RESTORED = ("tests/unit/runtime/task_management/test_restoration.py",)
_COPIES = ("tests/unit/runtime/task_management/test_global_updates.py",)
_DIRECTORIES = (
    "tests/unit/state/directories/test_file_lock.py",
    "tests/unit/state/directories/test_state_directory.py",
)

MUTANTS: tuple[Mutant, ...] = (
    # --- recreated tasks ---
    mutant(
        "a task stays half closed if its stores cannot be closed",
        _TASK,
        "        finally:\n"
        "            # The task can be opened again, even if closing failed.\n"
        '            self._state.transition_to(TaskState.CLOSED, "released")\n',
        "        finally:\n            pass\n"
        '        self._state.transition_to(TaskState.CLOSED, "released")\n',
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
        "a task stays open if its changelogs cannot be unassigned",
        _TASKS,
        "                closing.callback(self._restoration.remove, task_id)\n",
        "                self._restoration.remove(task_id)\n"
        "                closing.pop_all()\n                task.close(clean=clean)\n",
        tests=(*_UNTRUSTED, *_OWNED),
    ),
    mutant(
        "corrupt state is used again",
        _TASKS,
        "                task.stores.mark_corrupted()\n",
        "                pass\n",
        tests=_UNTRUSTED,
    ),
    mutant(
        "untrusted state is used by the next owner",
        _DIRECTORY,
        "        if self.is_marked_corrupted:\n",
        "        if False:\n",
        tests=_UNTRUSTED,
    ),
    mutant(
        "a recreated standby becomes active",
        _TASKS,
        "            self._open_later(task, standby=standby)\n        self._sort()\n",
        "            self._open_later(task, standby=False)\n        self._sort()\n",
        tests=(*_STANDBY, *_UNTRUSTED),
    ),
    mutant(
        "a task is recreated endlessly",
        _TASKS,
        "            if self._revivals[task_id] > _MAX_REVIVALS:\n",
        "            if False:\n",
        tests=(*_OWNED, *_UNTRUSTED),
    ),
    # --- restoring and standbys ---
    mutant(
        "tasks start before they are restored",
        _TASKS,
        "            and not self._restoration.has_unfinished(task.task_id)\n",
        "",
        tests=(*_OWNED, *_RESTORED),
    ),
    mutant(
        "a promoted standby does not read the rest",
        _TASKS,
        "                task.activate()\n                self._restore(task)\n",
        "                task.activate()\n",
        tests=_STANDBY,
    ),
    mutant(
        "changelogs of a closed task are still read",
        _RESTORATION,
        "            self._consumer.unassign(reading)\n        finally:",
        "            pass\n        finally:",
        tests=_RESTORED,
    ),
    # --- global stores ---
    mutant(
        "global stores that cannot be closed are not recreated",
        _GLOBAL,
        '            logger.warning("the global stores did not close: %s", error)\n',
        "            raise\n",
        tests=_COPIES,
    ),
    mutant(
        "closed global stores are used",
        _GLOBAL,
        "        self._phase = _Phase.CLOSED\n        with ExitStack",
        "        with ExitStack",
        tests=_COPIES,
    ),
    mutant(
        "untrusted global stores are still updated",
        _GLOBAL,
        "                self._directory.wipe()\n",
        "                pass\n",
        tests=_COPIES,
    ),
    # --- locks of directories ---
    mutant(
        "two processes own the state of one task",
        _LOCK,
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        tests=_DIRECTORIES,
    ),
    mutant(
        "a lock refers to a deleted file",
        _LOCK,
        "                if self._file.is_current:\n",
        "                if True:\n",
        tests=_DIRECTORIES,
    ),
    mutant(
        "a failed lock counts as held",
        _LOCK,
        "        finally:\n            # An open file would count as a held lock.\n"
        "            self._file.close()\n        return LockError",
        "        finally:\n            pass\n        self._file.close()\n        return LockError",
        tests=_DIRECTORIES,
    ),
    mutant(
        "a directory stays locked if it cannot be touched",
        _DIRECTORY,
        "            finally:\n                self._lock.release()\n",
        "            finally:\n                pass\n            self._lock.release()\n",
        tests=_DIRECTORIES,
    ),
)
