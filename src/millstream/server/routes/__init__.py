"""The endpoints, grouped by resource."""
