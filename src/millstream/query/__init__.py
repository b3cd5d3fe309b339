"""Asking the state of a running application."""
