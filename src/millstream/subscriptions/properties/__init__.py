"""The properties of a subscription: declaration, parsing, and watching of a properties file."""
