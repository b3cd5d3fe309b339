"""Bad inputs and their outcomes; the source of `docs/build/bad-input.md`."""
