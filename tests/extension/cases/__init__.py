"""The fuzz targets: random cases, and the code that runs them.

| Module | Purpose |
|---|---|
| `targets` | the list of targets |
| `values` | values of traces, and objects with unusual behavior |
| `pure_functions`, `structures`, `key_indexes` | targets without user functions |
| `sides`, `loops` | loops with user functions that raise, re-enter and modify the cache |
| `topologies` | whole aggregations, including sessions |
| `hooks`, `hostile` | Python code at every place where C code can run it |
| `allocations` | failing allocations of memory |
| `client_lifecycles` | clients without a broker, created, used and closed in any order |
| `client_columns` | reading and writing columns, on a broker |
"""
