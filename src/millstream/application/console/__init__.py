"""The data of the console, as one document.

`console_document` combines the event log, the topology as a graph (`topology_graph`), aggregated
metrics of edges and stores (`metric_summary`), and subscriptions (`subscription_view`).
"""
