"""Owns the decision what to claim: `plan(heads, policies, room)` turns lanes into asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from windlass.core.job import Ask, Claim, Head, Lane

SLOTS = "slots"
MOST_BUDGETS = 31
"""How many budgets a claim may name: a store tells them apart by the bits of an integer."""


class Pool(StrEnum):
    """Where a kind's handler runs, which bounds how many of it can start."""

    LOOP = "loop"
    THREADS = "threads"
    CHILDREN = "children"


@dataclass(frozen=True, kw_only=True)
class Policies:
    """Everything that can make an ask smaller.

    `kinds` are those that this worker knows, and where each runs. `queues` restricts the queues
    served; None serves all, but never those that are `excluded`. One step of priority is worth
    `aging` of waiting, so that a job of low priority overtakes fresh ones of higher priority in the
    end, and nothing starves.
    """

    kinds: Mapping[str, Pool]
    queues: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    paused_queues: frozenset[str] = frozenset()
    aging: timedelta = timedelta(minutes=1)

    def serves(self, lane: Lane) -> bool:
        """Say whether this lane may be asked at all."""
        return (
            lane.kind in self.kinds
            and (self.queues is None or lane.queue in self.queues)
            and lane.queue not in self.excluded
            and lane.queue not in self.paused_queues
        )

    def urgency(self, head: Head) -> float:
        """Return the time by which heads of lanes are compared: the earliest goes first."""
        return head.position.timestamp() - head.lane.priority * self.aging.total_seconds()


@dataclass(frozen=True, kw_only=True)
class Room:
    """What can start at once: so many jobs in all, and of them so many in threads or children.

    `queues` are those that have slots of their own, each with how many of them are free.
    """

    slots: int
    threads: int
    children: int = 0
    queues: Mapping[str, int] = field(default_factory=dict)


def plan(heads: Iterable[Head], policies: Policies, room: Room, *, at_most: int) -> Claim:
    """Return what to claim: lanes that may run, most urgent first, within the room there is.

    A lane may hold less than is asked of it, so each is asked for all that its budgets allow; the
    claim draws the budgets down in this order, and never takes more than they hold. A lane that
    was seen holds a job, so that no more are asked than would use up a budget with one job each.
    Where more queues have slots of their own than a claim has budgets, the most urgent are asked
    now, and the others by the next claim.
    """
    served = [head for head in heads if policies.serves(head.lane)]
    served.sort(key=policies.urgency)
    budgets = {
        SLOTS: min(room.slots, at_most),
        Pool.THREADS.value: room.threads,
        Pool.CHILDREN.value: room.children,
    }
    left = dict(budgets)
    asks = []
    for head in served:
        draws = _DRAWS[policies.kinds[head.lane.kind]]
        if head.lane.queue in room.queues and all(left[name] > 0 for name in draws):
            own = queue_budget(head.lane.queue)
            draws = (*draws, own)
            free = room.queues[head.lane.queue]
            if free > 0 and own not in budgets and len(budgets) < MOST_BUDGETS:
                budgets[own] = left[own] = free
        if all(left.get(name, 0) > 0 for name in draws):
            count = min(budgets[name] for name in draws)
            asks.append(Ask(lane=head.lane, count=count, draws=draws, floor=head.floor))
            for name in draws:
                left[name] -= 1
        if left[SLOTS] <= 0:
            break
    return Claim(asks=tuple(asks), budgets=budgets)


def queue_budget(queue: str) -> str:
    """Return the name of the budget that all asks for a queue with slots of its own draw on."""
    return f"queue:{queue}"


_DRAWS: dict[Pool, tuple[str, ...]] = {
    Pool.LOOP: (SLOTS,),
    Pool.THREADS: (SLOTS, Pool.THREADS.value),
    Pool.CHILDREN: (SLOTS, Pool.CHILDREN.value),
}
