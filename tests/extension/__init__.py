"""Safety of the C extension: differential fuzzing, sanitizers, and measurements of leaks.

| Module | Purpose |
|---|---|
| `__main__` | the program of `make fuzz-native` |
| `cases/` | the fuzz targets |
| `campaign` | runs cases in child processes, and reduces failing ones |
| `worker` | the child process |
| `sanitize` | the program of `make sanitize` |
| `variants` | builds of the extension for a sanitizer or another Python |
| `leaks` | measures the memory that each C function keeps per record |
| `unhurried` | settings of pytest for slow interpreters |
"""
