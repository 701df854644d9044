"""Owns how long the end of a worker's process may take beyond its shutdown timeout."""

from __future__ import annotations

from datetime import timedelta

WORKER_GRACE = timedelta(seconds=5)
SUPERVISOR_GRACE = timedelta(seconds=7)
DRAIN_GRACE = timedelta(seconds=10)
"""The time after which a worker ends itself, its supervisor kills it, and `--drain` gives up.

The order and the distance matter. A worker that ends by itself says why, which a killed one cannot.
And `--drain` has to outlast the supervisor, or it would report a failure that was about to be
resolved.
"""


BEAT_SECONDS = 2.0
"""Seconds between two heartbeats, idle or not, so that others see a recent state; the lease alone
would need fewer.
"""
