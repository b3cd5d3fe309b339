"""Sums of windows that overlap."""

from __future__ import annotations

from workloads.window import TumblingSums


class HoppingSums(TumblingSums):
    """Sums an amount by key in windows of a minute that begin each 20 seconds, so each record is in
    three; no grace."""

    advance_ms = 20_000


WORKLOAD = HoppingSums()
