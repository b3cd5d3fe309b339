"""Versioned stores: `store` is what processors see, `table` what the DSL's operators use, and
`versions` keeps the versions as bytes."""
