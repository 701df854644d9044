"""Owns which limits apply to a job: by the handlers at hand, or else as live workers report."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.core.policies.limit import Limit, queue_limit
from windlass.core.workers import LimitInfo, WorkerRecord
from windlass.handlers.registry import Registry


class KnownLimits:
    """The limits of an app's handlers, and those that live workers report."""

    def __init__(self, registry: Registry, workers: Iterable[WorkerRecord]) -> None:
        self._registry = registry
        alive = [each.info for each in workers if each.alive]
        self._kinds = {kind for info in alive for kind in info.kinds}
        self._uses = {kind: uses for info in alive for kind, uses in info.uses.items()}
        reported = {name: limit for info in alive for name, limit in info.limits.items()}
        found = {name: _read(name, limit) for name, limit in reported.items()}
        self._stored = {name: limit for name, limit in found.items() if limit is not None}

    def knows(self, kind: str) -> bool:
        """Return whether the limits of a kind are known."""
        return kind in self._registry or kind in self._kinds

    def of(self, kind: str, queue: str) -> dict[str, int]:
        """Return the names of the limits of a lane, and how many tokens a job takes of each.

        Where they are unknown, those are named that only people may have set.
        """
        if kind in self._registry:
            return dict(self._registry.limited_by(kind, queue))
        return {queue_limit(queue): 1, **self._uses.get(kind, {f"kind:{kind}": 1})}

    def get(self, name: str) -> Limit | None:
        """Return a limit as in the code; None if it is unknown."""
        return self._registry.limits.get(name) or self._stored.get(name)

    def order_of(self, kind: str, queue: str) -> Limit | None:
        """Return the limit that keeps jobs of a kind in order; None if there is none."""
        limits = [self.get(name) for name in self.of(kind, queue)]
        return next((limit for limit in limits if limit is not None and limit.ordered), None)


def _read(name: str, reported: LimitInfo) -> Limit | None:
    try:
        return Limit.reported(name, reported)
    except ValueError:
        return None  # Written by another release.
