"""Owns how many jobs of each queue run, where queues have slots of their own."""

from __future__ import annotations

from collections.abc import Mapping


class Shares:
    """The slots that queues have of their own, and how many of them are taken."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._free = dict(slots)

    def __bool__(self) -> bool:
        return bool(self._free)

    def take(self, queue: str) -> None:
        """Let a job of a queue have one of its slots."""
        if queue in self._free:
            self._free[queue] -= 1

    def give(self, queue: str) -> None:
        """Have the slot back that a job of a queue had."""
        if queue in self._free:
            self._free[queue] += 1

    @property
    def free(self) -> Mapping[str, int]:
        """How many slots each of the queues has left, now and later."""
        return self._free
