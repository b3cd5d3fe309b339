"""The parts of `bench.py`, selected with `--only PART`, and their helpers."""
