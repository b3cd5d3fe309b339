"""Load, broker, measurement and verification, shared by the parts of `bench.py`."""
