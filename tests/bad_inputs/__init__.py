"""Bad inputs, each with what becomes of it. `docs/bad-input.md` is made of them."""
