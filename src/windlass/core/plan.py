"""Owns the decision what to claim: `plan(heads, policies, room)` turns lanes into asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from windlass.core.job import Ask, Claim, Head, Lane

SLOTS = "slots"
MOST_BUDGETS = 31
"""How many budgets a claim may name: a store tells them apart by the bits of an integer."""


class Pool(StrEnum):
    """Where a kind's handler runs, which bounds how many of it can start."""

    LOOP = "loop"
    THREADS = "threads"
    CHILDREN = "children"


class Allowance(NamedTuple):
    """How much a limit, or a breaker, lets start at present.

    It holds for all lanes that name it together. One that is `shared` by lanes of several keys is
    drawn down by the claim itself; another is divided up among the asks beforehand.
    """

    name: str
    left: int
    amount: int = 1
    """What one job uses up of it."""
    shared: bool = True


def _unlimited(_lane: Lane) -> Iterable[Allowance]:
    return ()


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
    ordered: frozenset[str] = frozenset()
    """Kinds whose jobs must not be overtaken, so that no claim may begin above a lane's head."""
    aging: timedelta = timedelta(minutes=1)
    allowances: Callable[[Lane], Iterable[Allowance]] = _unlimited
    bars: Callable[[Lane], bool] | None = None
    """Says of which lanes nothing may start, however much room there is; None: of none."""

    def serves(self, lane: Lane) -> bool:
        """Say whether this lane may be asked at all."""
        return (
            lane.kind in self.kinds
            and (self.queues is None or lane.queue in self.queues)
            and lane.queue not in self.excluded
            and lane.queue not in self.paused_queues
            and (self.bars is None or not self.bars(lane))
        )

    def may_run(self, lane: Lane) -> bool:
        """Say whether a job of this lane could start now, if there was room for it."""
        return self.serves(lane) and all(each.left >= each.amount for each in self.allowances(lane))

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
    Where there are more budgets than a claim can name, the most urgent lanes are asked now, and the
    others by the next claim.
    """
    served = [head for head in heads if policies.serves(head.lane)]
    served.sort(key=policies.urgency)
    purse = _Purse(room, at_most)
    asks = []
    for head in served:
        if purse.left[SLOTS] <= 0:
            break
        draws = _DRAWS[policies.kinds[head.lane.kind]]
        if all(purse.left[name] > 0 for name in draws):
            count, draws = purse.draw(draws, _allowances(head.lane, policies, room))
            if count > 0:
                floor = None if head.lane.kind in policies.ordered else head.floor
                asks.append(Ask(lane=head.lane, count=count, draws=draws, floor=floor))
    return Claim(asks=tuple(asks), budgets=purse.budgets, reserves=purse.reserves())


class _Purse:
    """What a claim may still ask for while its asks are made up."""

    def __init__(self, room: Room, at_most: int) -> None:
        self.budgets = {
            SLOTS: min(room.slots, at_most),
            Pool.THREADS.value: room.threads,
            Pool.CHILDREN.value: room.children,
        }
        self.left = dict(self.budgets)
        self._divided: dict[str, int] = {}
        self._given: dict[str, int] = {}

    def draw(
        self, draws: tuple[str, ...], allowances: Iterable[Allowance]
    ) -> tuple[int, tuple[str, ...]]:
        """Return how many jobs of a lane may be asked for, and the budgets that they draw on."""
        divided = []
        for each in allowances:
            if not each.shared or each.amount > 1:
                divided.append(each)
                continue
            if each.left > 0 and each.name not in self.budgets and self._has_room:
                self.budgets[each.name] = self.left[each.name] = each.left
            draws = (*draws, each.name)
        count = min(self.budgets[n] if self.left.get(n, 0) > 0 else 0 for n in draws)
        for each in divided:
            count = min(count, self._divided.setdefault(each.name, each.left) // each.amount)
        if count <= 0:
            return 0, draws
        for each in divided:
            self._divided[each.name] -= count * each.amount
            self._given[each.name] = self._given.get(each.name, 0) + count * each.amount
        for name in draws:
            self.left[name] -= 1
        return count, draws

    def reserves(self) -> dict[str, int]:
        """Return how much of each allowance may be used up."""
        slots = self.budgets[SLOTS]
        shared = {
            name: min(budget, slots)
            for name, budget in self.budgets.items()
            if name not in _OF_THE_WORKER and self.left[name] < budget
        }
        return self._given | shared

    @property
    def _has_room(self) -> bool:
        return len(self.budgets) < MOST_BUDGETS


def _allowances(lane: Lane, policies: Policies, room: Room) -> Iterator[Allowance]:
    if lane.queue in room.queues:
        yield Allowance(queue_budget(lane.queue), room.queues[lane.queue])
    yield from policies.allowances(lane)


def queue_budget(queue: str) -> str:
    """Return the name of the budget that all asks for a queue with slots of its own draw on."""
    return f"queue:{queue}"


_DRAWS: dict[Pool, tuple[str, ...]] = {
    Pool.LOOP: (SLOTS,),
    Pool.THREADS: (SLOTS, Pool.THREADS.value),
    Pool.CHILDREN: (SLOTS, Pool.CHILDREN.value),
}
_OF_THE_WORKER = frozenset({SLOTS, Pool.THREADS.value, Pool.CHILDREN.value})
