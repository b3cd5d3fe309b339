"""Versioned stores."""
