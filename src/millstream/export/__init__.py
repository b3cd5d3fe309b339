"""Metrics exporters for other systems. Each module requires an extra.

`prometheus` converts metrics to Prometheus' formats, `scrape_server` serves them on their own port,
`opentelemetry_metrics` exports them as instruments.
"""
