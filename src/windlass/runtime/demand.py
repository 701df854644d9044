"""Owns what a worker learns of the demand by the way: from its claims, without counting jobs."""

from __future__ import annotations

from collections.abc import Callable


class Demand:
    """Whether work waits, and how many jobs ran at once. Told once for each claim, not each job."""

    def __init__(self, running: Callable[[], int]) -> None:
        self._running = running
        self.waiting = False
        """Whether there is work, as far as is known, for which there is no room."""
        self.served = 0.0
        """Seconds that jobs took, added up by whoever ends them; only if anybody looks at it."""
        self._more = False
        self._short = 0
        self._peak = 0

    def claimed(self, *, more: bool) -> None:
        """Take notice of a claim whose jobs have just started; `more`: it got all it asked for."""
        self._peak = max(self._peak, self._running())
        self._more = self.waiting = more
        self._short += not more

    def rested(self, *, waiting: bool) -> None:
        """Take notice that nothing can be asked for; `waiting`: for want of threads, not jobs."""
        self._more = False
        self._short += 1
        self.waiting = waiting

    def look(self) -> tuple[bool, int]:
        """Say whether slots were short all the time since the last look, and the most in use."""
        peak, self._peak = max(self._peak, self._running()), self._running()
        short, self._short = self._short, 0
        return self._more and not short, peak
