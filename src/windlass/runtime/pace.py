"""Owns how fast claimed jobs come to their handlers, and so how many are worth having in hand.

Handlers take turns on one event loop. What does not get its turn soon is better off with a worker
that is idle, so it is given back; and who had to give back takes smaller bites.
"""

from __future__ import annotations

PROMPT = 0.05
"""Seconds within which a claimed job begins, or is given back."""
_WORTH = 0.04
"""Seconds' worth of starts that may be in hand or on their way; the rest is for surprises."""
_MOST = 1_000_000
_LEAST = _WORTH / _MOST


class Pace:
    """The time from one start to the next, as it was lately."""

    def __init__(self) -> None:
        self._each = _LEAST
        self._last = float("-inf")
        self._since = 0.0
        self._starts = 0

    def may_begin(self, arrived: float, now: float) -> bool:
        """Say whether a job that arrived then shall begin now, or is to be given back.

        One that is late begins nevertheless if none has begun since it arrived: else a loop that is
        always late would never begin anything.
        """
        if arrived > self._last:
            self._learn()
            self._since = now
        elif now - arrived > PROMPT:
            self._hurry(now)
            return False
        else:
            self._starts += 1
        self._last = now
        return True

    @property
    def bite(self) -> int:
        """How many jobs can begin soon, of those that are here and those that are on their way."""
        self._learn()
        return max(1, int(_WORTH / self._each))

    def _learn(self) -> None:
        if self._starts:
            latest = (self._last - self._since) / self._starts
            self._each = max((self._each + latest) / 2, _LEAST)
            self._since, self._starts = self._last, 0

    def _hurry(self, now: float) -> None:
        """Believe at once that it takes as long as it did just now."""
        self._each = max(self._each, (now - self._since) / (self._starts + 1))
        self._since, self._starts = now, 0
