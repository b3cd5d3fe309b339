"""Record caches: the latest values as objects, held back until a commit."""
