"""Table operators: sources, transformations, stores and suppression."""
