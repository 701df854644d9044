"""Owns how fast claimed jobs come to their handlers, and so how many are worth having in hand.

Handlers take turns on one event loop. What does not get its turn soon is better off with a worker
that is idle, so it is given back; and who had to give back takes smaller bites.
"""

from __future__ import annotations

import math

PROMPT = 0.05
"""Seconds within which a claimed job begins, or is given back."""
_WORTH, _LEAST_WORTH = 0.04, 0.004
"""Seconds' worth of starts that may be in hand or on their way; the rest is for surprises.

It is halved whenever there was one, like a machine that is busy with others, and grows again.
"""
_GROWTH = 1.02
_LEAST = 1e-6
_UNKNOWN = 1e-4


class Pace:
    """The time that a start takes until the next one can follow, as it was lately."""

    def __init__(self) -> None:
        self._each = _UNKNOWN
        self._worth = _WORTH
        self._last = -math.inf
        self._since: float | None = None
        self._before = 0

    def may_begin(self, arrived: float, now: float) -> bool:
        """Say whether a job that arrived then shall begin now, or is to be given back.

        One that is late begins nevertheless if none has begun since it arrived: else a loop that is
        always late would never begin anything.
        """
        if now - arrived > PROMPT and arrived <= self._last:
            self._hurry(now)
            return False
        if self._since is None:
            self._since, self._before = now, 0
        else:
            self._before += 1
        self._last = now
        return True

    def rest(self, now: float) -> None:
        """Take notice that all have begun, and the last one lets go of the loop."""
        if self._since is not None:
            self._learn((now - self._since) / (self._before + 1))
            self._since = None

    @property
    def bite(self) -> int:
        """How many jobs can begin soon, of those that are here and those that are on their way."""
        if self._since is not None and self._before:
            self._learn((self._last - self._since) / self._before)
            self._since, self._before = self._last, 0
        return max(1, int(self._worth / self._each))

    def _learn(self, latest: float) -> None:
        self._each = max((self._each + latest) / 2, _LEAST)
        self._worth = min(self._worth * _GROWTH, _WORTH)

    def _hurry(self, now: float) -> None:
        """Believe at once that it takes as long as it did just now."""
        if self._since is not None:
            self._each = max(self._each, (now - self._since) / (self._before + 1))
            self._worth = max(self._worth / 2, _LEAST_WORTH)
            self._since = None
