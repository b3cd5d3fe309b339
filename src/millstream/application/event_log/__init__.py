"""The event log of an application instance, for the console.

The supervisor reports each event with one call. The log keeps the latest events of each kind, with
their times: state changes, rebalances with the owned tasks before and after, failures with the
steps that followed, restorations, and rates.
"""
