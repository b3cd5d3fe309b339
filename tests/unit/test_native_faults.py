"""Python code that runs inside the extension's C functions does not crash the process.

Finalizers, subclasses of bytes, `__index__`, callbacks and collections change the objects that the
C code works on. Each program runs in its own process, which overwrites freed memory.

Also, other libraries in a process cannot replace the extension's functions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from typing import Final

import pytest
from support.strictness import needed_speedups

#: A cache with the attributes that the loops use, and the columns of records.
PREFACE: Final = """
import gc
from array import array
from millstream.native import library as m

class Layout:
    suffix_bytes = 8

class Sessions:
    suffix_bytes = 16

class Cache:
    def __init__(self):
        self.entries, self.dirty, self.seq = m.EntryTable(), [], 0
    def load_many(self, keys):
        for entry in m.new_entries(keys, 1, self.seq + 1):
            self.entries[entry.key_bytes] = entry
        self.seq += len(keys)
    def on_added(self, entries, size_bytes):
        pass

def updates(stored, keys=None, values=None, times=None, offsets=None):
    count = len(stored)
    return (stored, None, keys or ["k"] * count, values or [1] * count, times or list(range(count)),
            [None] * count, offsets or range(count), None, array("q", [-1]))

def add(key, value, so_far):
    return so_far + value

def report(index, error):
    print(index, repr(error))

def attempt(call, *arguments):
    try:
        print(call(*arguments))
    except Exception as error:
        print(repr(error))
"""

#: Each program, and its output.
PROGRAMS: Final = {
    "a settled entry has no key": (
        """
entry = m.CachedEntry(b"k", None, 1, 1)
del entry.key_bytes
attempt(m.mark_flushed, [entry], [b"v"], 1)
attempt(m.remove_entries, m.EntryTable(), [entry])
""",
        "AttributeError('the entry has no key, because its key_bytes were deleted')\n" * 2,
    ),
    "the repr for an error message clears the list": (
        """
class Meta(type):
    def __repr__(self):
        entries.clear()
        return "Odd"
class Odd(metaclass=Meta):
    def __repr__(self):
        entries.clear()
        return "odd"
entries = [Odd() for _ in range(40)]
attempt(m.remove_entries, m.EntryTable(), entries)
""",
        "TypeError('expected a CachedEntry, not Odd')\n",
    ),
    "a garbage collection clears the table": (
        """
class Emptying:
    def __init__(self):
        self.me = self
    def __del__(self):
        table.clear()
table = m.EntryTable()
found = set()
for threshold in range(1, 60):
    for number in range(40):
        key = b"key-%d" % number
        table[key] = m.CachedEntry(key, None, 1, 1)
    gc.collect()
    gc.disable()
    Emptying()
    gc.set_threshold(threshold, 1000, 1000)
    gc.enable()
    found.add(len(table.items()))
    gc.disable()
print(found <= {0, 40})
""",
        "True\n",
    ),
    "comparing removes windows from the index": (
        """
class Key(bytes):
    __hash__ = bytes.__hash__
    def __eq__(self, other):
        global armed
        if armed:
            armed = False
            for each in others:
                index.remove(each)
        return bytes.__eq__(self, other)
for both in (False, True):
    armed = False
    index = m.KeyIndex(Layout, list)
    index.of_key(b"k", 0, 1)
    first, second, third = (Key(b"k" + bytes(7) + bytes([number])) for number in range(3))
    others = [bytes(second), bytes(first)] if both else [bytes(second)]
    index.add(first)
    index.add(second)
    armed = True
    attempt(index.remove, Key(first))
    armed = False
    index.add(third)
    print([each[-1] for each in index.of_key(b"k", 0, 99)])
""",
        "None\n[1, 2]\n" * 2,
    ),
    "adding replaces the count": (
        """
class Count:
    def __init__(self):
        self.room = [1] * 100
    def __add__(self, other):
        entry.value = 5
        return NotImplemented
cache = Cache()
cache.load_many([b"a"])
entry = cache.entries[b"a"]
entry.value = Count()
attempt(m.count_entries, cache, updates([b"a"]))
print(entry.value)
""",
        "TypeError(\"unsupported operand type(s) for +: 'Count' and 'int'\")\n5\n",
    ),
    "loading clears the list of keys": (
        """
class Emptying(Cache):
    def load_many(self, keys):
        super().load_many(keys)
        stored.clear()
cache = Emptying()
stored = [bytes(bytearray(b"same key")) for _ in range(5)]
attempt(m.fold_entries, cache, updates(stored), int, add, None, report)
print(cache.entries[b"same key"].value)
""",
        "None\n5\n",
    ),
    "hashing clears the list of keys": (
        """
class Key(bytes):
    def __hash__(self):
        stored.clear()
        gc.collect()
        return bytes.__hash__(self)
    __eq__ = bytes.__eq__
cache = Cache()
stored = [Key(b"first"), *(bytes(bytearray(b"key %d" % number)) for number in range(200))]
attempt(m.fold_entries, cache, updates(stored), int, add, None, report)
print(len(cache.entries), sum(entry.value for entry in cache.entries.values()))
""",
        "None\n201 201\n",
    ),
    "a C merger replaces the aggregate": (
        """
class Aggregate:
    def __init__(self):
        self.room = bytearray(1000)
class Key:
    def __getattr__(self, name):
        for entry in cache.entries.values():
            entry.value = 1
        raise AttributeError(name)
def aggregate(key, value, so_far):
    return repr(so_far) and Aggregate()
cache = Cache()
index = m.KeyIndex(Sessions, lambda: cache.entries)
attempt(m.fold_sessions, cache, index, m.EvictionOrder(), {},
        updates([b"k", b"k"], [Key(), Key()], times=[100, 105]), (10, 10, -1, -1, 50),
        lambda: "name", aggregate, getattr, report, lambda *_: False)
print([type(entry.value).__name__ for entry in cache.entries.values()])
""",
        "(105, 0)\n['Aggregate']\n",
    ),
    "long chains are freed": (
        """
import threading

def in_table(last):
    table = m.EntryTable()
    table[b"k"] = m.CachedEntry(b"k", last, 1, 1)
    return table

def in_order(last):
    order = m.EvictionOrder()
    order.add(m.CachedEntry(b"k", last, 1, 1))
    return order

def build():
    for make in (
        lambda last: m.CachedEntry(b"k", last, 1, 1),
        lambda last: m.KeyIndex(Layout, last),
        in_table,
        in_order,
    ):
        last = None
        for _ in range(20_000):
            last = make(last)
        del last
    print("gone")

threading.stack_size(1 << 18)
thread = threading.Thread(target=build)
thread.start()
thread.join()
""",
        "gone\n",
    ),
    "nothing is called after a failure": (
        """
called = []
def offsets():
    called.append("offsets")
    yield 1
class Number:
    def __index__(self):
        called.append("number")
        return 1
cache = Cache()
records = updates([b"a"], times=["?"], offsets=offsets())
attempt(m.fold_entries, cache, records, int, add, None, report)
attempt(m.CachedEntry(b"k", None, 1, 1).change, 1, "?", Number(), None, Number(), ())
print(called)
""",
        "TypeError(\"'str' object cannot be interpreted as an integer\")\n" * 2 + "[]\n",
    ),
    "numbers do not overflow": (
        """
cache = Cache()
cache.load_many([b"a"])
cache.seq = 2**63 - 1
attempt(m.count_entries, cache, updates([b"a"]))
print(cache.seq == 2**63 - 1, cache.dirty)
attempt(m.new_entries, [b"a", b"b"], 1, 2**63 - 1)
""",
        "OverflowError('a number of a cache exceeds 64 bits')\nTrue []\n"
        "OverflowError('a number of a cache exceeds 64 bits')\n",
    ),
    "an invalid number is assigned": (
        """
entry = m.CachedEntry(b"k", None, 3, 5)
for number in ("text", None, 2**63):
    attempt(setattr, entry, "used_seq", number)
attempt(delattr, entry, "size")
print(entry.used_seq, entry.size)
""",
        "TypeError(\"'str' object cannot be interpreted as an integer\")\n"
        "TypeError(\"'NoneType' object cannot be interpreted as an integer\")\n"
        "OverflowError('int too big to convert')\n"
        "TypeError('numbers of an entry cannot be deleted')\n5 3\n",
    ),
    "user code changes the entry of its record": (
        """
cache = Cache()
def aggregate(key, value, so_far):
    cache.entries[b"a"].change(7, 100, 1, None, 0, ())
    return 5
attempt(m.fold_entries, cache, updates([b"a"], times=[50]), int, aggregate, None, report)
print(cache.entries[b"a"].value, cache.entries[b"a"].timestamp)

class Count:
    def __add__(self, other):
        entry.value = None
        return 2
entry = cache.entries[b"a"]
entry.value, entry.timestamp = Count(), 100
attempt(m.count_entries, cache, updates([b"a"], times=[50]))
print(entry.value, entry.timestamp)
""",
        # The first aggregate is new, whatever its timestamp is by now; the second is not.
        "None\n5 50\nNone\n2 100\n",
    ),
    "a failed load counts": (
        """
class Failing(Cache):
    def load_many(self, keys):
        self.seq += 7
        raise ValueError("below")
for loop in (m.count_entries, lambda *both: m.fold_entries(*both, int, add, None, report)):
    cache = Failing()
    attempt(loop, cache, updates([b"a"]))
    print(cache.seq)
""",
        "ValueError('below')\n7\n" * 2,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_python_code_inside_c_functions_does_not_crash(name: str) -> None:
    needed_speedups()
    program, printed = PROGRAMS[name]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PREFACE + program],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_other_libraries_cannot_replace_its_functions() -> None:
    """Only the functions that Python and librdkafka look up by name are visible to other libraries.
    Of visible functions with the same name, the one loaded first is called."""
    needed_speedups()
    nm = shutil.which("nm")
    assert nm is not None, "nm is part of binutils, which the extension's compiler needs"
    library = import_module("millstream.native.library").PLUGIN
    listed = subprocess.run(
        [nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names == {"PyInit__native", "conf_init"}
