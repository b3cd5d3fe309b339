"""Window and session stores."""
