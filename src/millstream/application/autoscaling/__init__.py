"""Scales the number of stream threads with the load.

`sampler` computes a sample of the load from the reports of threads (lags, totals, utilization),
`policy` makes decisions from these numbers alone, and `autoscaler` calls the policy once a second
and carries out its decisions in the background.
"""
