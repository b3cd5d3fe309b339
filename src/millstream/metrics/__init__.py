"""Metrics: sensors, the registry, and the transfer of values to the driver.

Each component owns its metrics: a scope of the `registry` for the thread, its tasks, nodes and
stores. `sensors` are updated once per batch, never per record. A thread sends changed values
often, and names only when they change (`metric_frames`); the driver decodes them on demand.
`values` are the metrics that users see, `user` the metrics of user code.
"""
