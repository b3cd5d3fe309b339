"""Metrics exporters for other systems. Each module requires an extra.

`prometheus` converts metrics to Prometheus' formats, `scrape_server` serves them on a separate
port, and `opentelemetry_metrics` exports them as instruments.
"""
