"""Safety of the C extension: differential fuzzing, sanitizers, and measurements of leaks.

| Module | Purpose |
|---|---|
| `__main__` | the program of `make fuzz-native` |
| `campaign` | runs random cases in child processes; reduces the first failing case of each target |
| `worker` | the child process |
| `targets` | the list of fuzz targets |
| `values` | values of traces, and objects with unusual behavior |
| `pure_functions`, `structures`, `key_indexes` | targets without user functions |
| `sides`, `loops` | aggregation loops with user functions that raise, re-enter and modify the cache |
| `topologies` | whole aggregations, including sessions |
| `hostile` | Python code at every place where C code can run it |
| `clients` | reading and writing columns, on a real broker |
| `leaks` | memory per record of each C function |
| `variants` | builds of the extension for a sanitizer or another Python |
| `sanitize` | the program of `make sanitize` |
"""
