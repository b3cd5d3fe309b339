"""Bad inputs, each with what becomes of it. `docs/build/bad-input.md` is made of them."""
