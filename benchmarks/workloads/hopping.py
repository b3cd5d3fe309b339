"""Sums of overlapping windows."""

from __future__ import annotations

from workloads.window import TumblingSums


class HoppingSums(TumblingSums):
    """Sums an amount by key in windows of a minute that begin every 20 seconds, so each record is
    in three windows. The windows have no grace period."""

    advance_ms = 20_000


WORKLOAD = HoppingSums()
