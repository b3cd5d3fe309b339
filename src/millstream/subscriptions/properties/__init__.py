"""The properties of a subscription: what there is, reading them, and following a file of them."""
