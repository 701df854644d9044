"""Owns the free capacity of a worker: its slots, and where the handlers of kinds run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from msgspec import Struct, field

SLOTS = "slots"
FREE = "free_slots"
"""The budget of jobs that keep their slots for a while; there is one only in claims ahead."""
MOST_BUDGETS = 31
"""How many budgets a claim may name: stores use the bits of an integer for them."""


class Pool(StrEnum):
    """Where the handler of a kind runs, which bounds how many of its jobs can start."""

    LOOP = "loop"
    THREADS = "threads"
    ISOLATED = "isolated_processes"


class Room(Struct, frozen=True, kw_only=True):
    """Free capacity: jobs in all, and of them how many in threads or child processes.

    `queues` are those with slots of their own, each with the number of free ones. If there are
    `quick` kinds, whose jobs free their slots at once, `slots` counts those that can begin soon,
    and only `free` of them may be jobs of other kinds.
    """

    slots: int
    threads: int
    isolated_processes: int = 0
    queues: Mapping[str, int] = field(default_factory=dict)
    quick: Collection[str] = ()
    free: int = 0

    def drawn_by(self, kind: str, pool: Pool) -> tuple[str, ...]:
        """Return the budgets of the worker that jobs of a kind draw on."""
        draws = _DRAWS[pool]
        return (*draws, FREE) if self.quick and kind not in self.quick else draws


def queue_budget(queue: str) -> str:
    """Return the name of the budget that all asks for a queue with slots of its own draw on."""
    return f"queue:{queue}"


_DRAWS: dict[Pool, tuple[str, ...]] = {
    Pool.LOOP: (SLOTS,),
    Pool.THREADS: (SLOTS, Pool.THREADS.value),
    Pool.ISOLATED: (SLOTS, Pool.ISOLATED.value),
}
