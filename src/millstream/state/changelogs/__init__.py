"""How changes of stores reach their changelog topics and come back from them."""
