"""Owns garbage collections between jobs: while a worker has nothing to do, not as a job begins."""

from __future__ import annotations

import gc

_MAX_IN_A_ROW = 50
"""Collections after which one is left to Python, which alone decides about the oldest objects."""


class IdleCollection:
    """Collects young objects at rest, before Python would do it in the middle of a job's start.

    Every thirtieth job or so would wait for one: 0.25 to 0.6 ms, about as long as all the rest of
    its start takes the worker.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def rest(self) -> None:
        """Collect if a collection is half due."""
        limit, limit_of_older, _ = gc.get_threshold()
        young, older, _ = gc.get_count()
        if 2 * young < limit or not limit or not gc.isenabled():
            if self._in_a_row == _MAX_IN_A_ROW:
                self._in_a_row = 0  # Python has collected.
        elif self._in_a_row < _MAX_IN_A_ROW:
            gc.collect(1 if older > limit_of_older else 0)
            self._in_a_row += 1
