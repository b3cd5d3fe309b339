"""The properties of a subscription: declaration, parsing, and file watching."""
