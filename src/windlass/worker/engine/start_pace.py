"""Owns the pace at which claimed jobs reach their handlers, and so how many to claim ahead.

Handlers take turns on one event loop. A job that does not start soon is given back, since an idle
worker could start it earlier; a worker that had to give jobs back claims fewer. Where handlers end
without waiting, a slot is free again as soon as the loop has gone through one: then the pace bounds
how many jobs can start soon, and not the number of slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

MAX_START_SECONDS = 0.05
"""Seconds within which a claimed job begins; later it is given back."""
_MAX_AHEAD_SECONDS, _MIN_AHEAD_SECONDS = 0.04, 0.004
"""Seconds of work that may be claimed ahead; the rest is a reserve.

Halved whenever a job started too late, for example on a busy machine; then it grows again.
"""
_GROWTH = 1.02
_MIN_START_SECONDS = 1e-6
_DEFAULT_START_SECONDS = 1e-4
_RUNS_TO_TRUST = 100
"""Runs in a row that have to end without waiting before jobs of their kind are claimed ahead."""


class StartPace:
    """The recent average time from one start to the next."""

    def __init__(self) -> None:
        self._each = _DEFAULT_START_SECONDS
        self._worth = _MAX_AHEAD_SECONDS
        self._last = -math.inf
        self._since: float | None = None
        self._before = 0

    def may_begin(self, arrived: float, now: float) -> bool:
        """Return whether a job that arrived then may begin now, or is to be given back.

        A late job begins nevertheless if no other has begun since it arrived: otherwise an event
        loop that is always late would never start a job.
        """
        if now - arrived > MAX_START_SECONDS and arrived <= self._last:
            self._hurry(now)
            return False
        if self._since is None:
            self._since, self._before = now, 0
        else:
            self._before += 1
        self._last = now
        return True

    def left(self, arrived: float, now: float) -> float:
        """Return for how many seconds more a job that arrived then may wait for a slot."""
        return arrived + MAX_START_SECONDS - now

    def rest(self, now: float) -> None:
        """Record that all jobs have begun, and that the last one has yielded to the event loop."""
        if self._since is not None:
            self._learn((now - self._since) / (self._before + 1))
            self._since = None

    @property
    def bite(self) -> int:
        """Number of jobs, here and on their way, that can begin soon."""
        if self._since is not None and self._before:
            self._learn((self._last - self._since) / self._before)
            self._since, self._before = self._last, 0
        return max(1, int(self._worth / self._each))

    def _learn(self, latest: float) -> None:
        self._each = max((self._each + latest) / 2, _MIN_START_SECONDS)
        self._worth = min(self._worth * _GROWTH, _MAX_AHEAD_SECONDS)

    def _hurry(self, now: float) -> None:
        if self._since is not None:
            self._each = max(self._each, (now - self._since) / (self._before + 1))
            self._worth = max(self._worth / 2, _MIN_AHEAD_SECONDS)
            self._since = None


class QuickKinds:
    """The kinds whose last runs have all ended without waiting for anything."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._streaks = dict.fromkeys(kinds, 0)
        self.known: set[str] = set()
        """The kinds that are quick at present."""

    def ended_at_once(self, kind: str) -> None:
        """Record that a run has ended without waiting; not called for kinds that are known."""
        if (streak := self._streaks.get(kind)) is not None:
            self._streaks[kind] = streak + 1
            if streak + 1 >= _RUNS_TO_TRUST:
                self.known.add(kind)

    def waited(self, kind: str) -> None:
        """Record that a run waits, for example for a network, and keeps its slot meanwhile."""
        if self._streaks.get(kind):
            self._streaks[kind] = 0
            self.known.discard(kind)

    def forget(self) -> None:
        """Trust no kind before it has proved itself again: jobs had to be given back."""
        self._streaks = dict.fromkeys(self._streaks, 0)
        self.known.clear()
