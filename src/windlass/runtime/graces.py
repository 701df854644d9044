"""Owns how long the end of a worker's process may take beyond its shutdown timeout."""

from __future__ import annotations

from datetime import timedelta

WORKER_GRACE = timedelta(seconds=5)
SUPERVISOR_GRACE = timedelta(seconds=7)
DRAIN_GRACE = timedelta(seconds=10)
"""After which a worker ends itself, its supervisor kills it, and `--drain` says that it runs on.

The order matters, and so does the room between them. A worker that ends by itself says why, and
whoever kills it sooner takes these words from it. And whoever waits for a supervisor from outside
has to outlast it, or reports a failure that was about to be mended.
"""
