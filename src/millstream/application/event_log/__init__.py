"""The event log of an application instance, for the console.

The supervisor reports each event with one call. The log keeps the latest of each kind, with times:
states, rebalances with the owned tasks before and after, failures with their steps, restorations,
and rates.
"""
