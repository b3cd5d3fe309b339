"""Scaling the number of stream threads with the load.

`sampler` computes a sample of the load from the reports of threads (lags, totals, utilization),
`policy` decides from numbers alone, and `autoscaler` asks it once a second and acts in the
background.
"""
