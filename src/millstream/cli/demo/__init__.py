"""The parts of `millstream demo`, which adds up the orders of a shop."""
