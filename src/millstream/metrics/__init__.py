"""Metrics: sensors, the registry, and the transfer of values to the driver.

Each component owns its metrics: threads, tasks, nodes and stores each have a scope of the
`registry`. `sensors` are updated once per batch, never per record. A thread sends changed values
frequently, and names only when they change (`metric_frames`). The driver decodes them on demand.
`values` are the metrics that users read, and `user` is for the metrics of user code.
"""
