"""The parts of `millstream demo`: a shop's orders, added up as they arrive, and verified."""
