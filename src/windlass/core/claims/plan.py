"""Owns the decision what to claim: `plan(heads, policies, room)` turns lanes into asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct, field

from windlass.core.claims.lanes import Ask, Claim, FairShare, Head
from windlass.core.jobs.job import AGING, Lane
from windlass.core.policies.fairness import Rotation
from windlass.core.policies.pauses import Pauses

SLOTS = "slots"
FREE = "free_slots"
"""The budget of jobs that keep their slots for a while; there is one only in claims ahead."""
MOST_BUDGETS = 31
"""How many budgets a claim may name: stores use the bits of an integer for them."""
MOST_SPENT = 500
"""How many exhausted lanes a plan may find: the event loop must not block on them."""
_AHEAD = 2_001
"""Steps of priority by which a target in jeopardy is ahead: more than there are priorities."""


class Pool(StrEnum):
    """Where the handler of a kind runs, which bounds how many of its jobs can start."""

    LOOP = "loop"
    THREADS = "threads"
    ISOLATED = "isolated_processes"


class Allowance(NamedTuple):
    """How many jobs a limit or a breaker lets start at present.

    The allowance holds for all lanes that name it together. A `shared` one, of lanes of several
    keys, is drawn down by the claim itself; any other is divided among the asks beforehand.
    """

    name: str
    left: int
    amount: int = 1
    """Tokens that one job uses."""
    shared: bool = True


def _unlimited(_lane: Lane) -> Iterable[Allowance]:
    return ()


class Policies(Struct, frozen=True, kw_only=True):
    """Everything that can make an ask smaller.

    `kinds` are those that this worker knows, with the place where each runs. `queues` restricts the
    queues served; None serves all, but never those that are `excluded`. One step of priority is
    worth `aging` of waiting, so that a job of low priority overtakes fresh ones of higher priority
    in the end, and nothing starves. `targets` limits how long jobs of a kind may wait: once a job
    has waited for half of that, its lane goes before any priority, the earliest deadline first. The
    keys of kinds in the `rotation` take turns.
    """

    kinds: Mapping[str, Pool]
    queues: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    paused: Pauses = field(default_factory=Pauses)
    ordered: frozenset[str] = frozenset()
    """Kinds whose jobs must not be overtaken, so that no claim may begin above a lane's head."""
    aging: timedelta = AGING
    targets: Mapping[str, timedelta] = field(default_factory=dict)
    rotation: Rotation | None = None
    allowances: Callable[[Lane], Iterable[Allowance]] = _unlimited
    lets: Callable[[Lane], bool] | None = None
    """Returns the lanes of which something could start, without asking for it; None: all."""
    bars: Callable[[Lane], bool] | None = None
    """Returns the lanes of which nothing may start, however many slots are free; None: none."""
    unspent: Callable[[Iterable[Head]], list[Head]] | None = None
    """Leaves out the lanes whose allowance is known to be zero; None leaves out nothing."""

    @property
    def minds_newcomers(self) -> bool:
        """Whether a lane that was not there before may go before those that were."""
        return self.rotation is not None or bool(self.targets)

    def serves(self, lane: Lane) -> bool:
        """Return whether this lane may be asked at all."""
        return (
            lane.kind in self.kinds
            and (self.queues is None or lane.queue in self.queues)
            and lane.queue not in self.excluded
            and not (self.paused and any(self.paused.holding(lane)))
            and (self.bars is None or not self.bars(lane))
        )

    def hopeful(self, heads: Sequence[Head]) -> Sequence[Head]:
        """Return the heads of lanes that are not known to be exhausted."""
        return heads if self.unspent is None else self.unspent(heads)

    def may_run(self, lane: Lane) -> bool:
        """Return whether a job of this lane could start now, given a free slot."""
        return self.serves(lane) and (self.lets is None or self.lets(lane))

    def urgency(self, head: Head, now: datetime | None = None) -> float:
        """Return the time by which heads of lanes are compared: the earliest goes first."""
        step = self.aging.total_seconds()
        target = None if now is None else self.targets.get(head.lane.kind)
        if now is not None and target is not None and now - head.position >= target / 2:
            return (head.position + target).timestamp() - _AHEAD * step
        return head.position.timestamp() - head.lane.priority * step


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


def plan(
    heads: Sequence[Head],
    policies: Policies,
    room: Room,
    *,
    at_most: int,
    now: datetime | None = None,
    thorough: bool = False,
) -> Claim:
    """Return the claim: lanes that may run, most urgent first, within the free capacity.

    A lane may hold fewer jobs than asked for, so each is asked for all that its budgets allow; the
    claim draws them down in this order. Every lane that was seen holds a job, so no more lanes are
    asked than would use up a budget with one job each. Lanes whose budgets a claim cannot name any
    more are left to the next. Keys that take turns are as urgent as the oldest of them. Without
    `now`, no target is in jeopardy. Where many exhausted lanes are discovered, the claim is `cut`,
    and the next plan continues from there, unless it is `thorough`.
    """
    allotment = _Allotment(room, at_most)
    allowed = partial(_allowances, policies, room)
    finds = _Finds(policies, len(heads) + 1 if thorough else MOST_SPENT)
    asks: list[Ask] = []
    turns: list[FairShare] = []
    others = False
    for unit in _by_urgency(heads, policies, now):
        if allotment.left[SLOTS] <= 0 or finds.are_too_many:
            break
        lane = (unit if isinstance(unit, Head) else unit[0]).lane
        draws = _draws(lane.kind, policies, room)
        if any(allotment.left[name] <= 0 for name in draws):
            continue
        if isinstance(unit, Head):
            count, draws = allotment.draw(draws, allowed(lane))
            if count > 0:
                asks.append(_ask(unit, count, draws, policies))
            else:
                finds.look_at(unit)
        elif policies.rotation is not None:
            more, theirs, looked_at = _in_turn(unit, draws, allotment, policies, allowed, finds)
            asks += more
            turns += theirs
            others = others or looked_at < len(unit)
    return Claim(
        asks=tuple(asks),
        budgets=allotment.budgets,
        reserves=allotment.reserves(),
        turns=tuple(turns),
        cut=finds.are_too_many,
        others=others,
    )


def _draws(kind: str, policies: Policies, room: Room) -> tuple[str, ...]:
    """Return the budgets of the worker that jobs of a kind draw on."""
    draws = _DRAWS[policies.kinds[kind]]
    return (*draws, FREE) if room.quick and kind not in room.quick else draws


def _by_urgency(
    heads: Sequence[Head], policies: Policies, now: datetime | None
) -> Iterable[Head | Sequence[Head]]:
    """Return the heads of lanes that may run, the heads of a fair group in one entry."""
    urgency = partial(policies.urgency, now=now) if policies.targets else policies.urgency
    rotation = policies.rotation
    if rotation is None:
        served = [head for head in policies.hopeful(heads) if policies.serves(head.lane)]
        return sorted(served, key=urgency)
    alone, together = _grouped(heads, rotation)
    served = [head for head in policies.hopeful(alone) if policies.serves(head.lane)]
    units: list[tuple[float, int, Head | Sequence[Head]]] = [
        (urgency(head), number, head) for number, head in enumerate(served)
    ]
    for group in together:
        if not policies.serves(group[0].lane._replace(key="")):
            continue
        if paused := policies.paused.keys:
            group = [head for head in group if head.lane.key not in paused]
        if group:
            oldest = min(group, key=_POSITION)
            rotation.tidy(group)
            units.append((urgency(oldest), len(units), policies.hopeful(group)))
    return [unit for _, _, unit in sorted(units) if unit]


def _grouped(heads: Iterable[Head], rotation: Rotation) -> tuple[list[Head], list[list[Head]]]:
    # A group may have many keys, so checks that hold for the whole group are left to its one entry.
    # Stores return the lanes of a group consecutively, as a rule.
    fair = rotation.kinds
    alone: list[Head] = []
    groups: dict[tuple[str, str, int], list[Head]] = {}
    queue, kind, priority, add = "", "", 0, alone.append
    for head in heads:
        lane = head.lane
        if lane[1] == kind and lane[0] == queue and lane[2] == priority:
            add(head)
        elif lane[1] in fair:
            queue, kind, priority = group = lane[:3]
            add = groups.setdefault(group, []).append
            add(head)
        else:
            alone.append(head)
    return alone, list(groups.values())


def _in_turn(
    heads: Sequence[Head],
    draws: tuple[str, ...],
    allotment: _Allotment,
    policies: Policies,
    allowed: Callable[[Lane], Iterable[Allowance]],
    finds: _Finds,
) -> tuple[list[Ask], list[FairShare], int]:
    """Return the asks for the keys of a group, their turns, and how many keys were considered."""
    drawn: dict[Lane, tuple[str, ...]] = {}
    known: dict[Lane, list[Allowance]] = {}

    def draw(lane: Lane, most: int) -> int | None:
        if lane not in known:
            if finds.are_too_many:
                return None
            known[lane] = list(allowed(lane))
        again = lane in drawn
        count, names = allotment.draw(draws, known[lane], most=most, again=again)
        if count > 0:
            drawn[lane] = names
        elif not again:
            finds.look_at(Head(lane=lane, position=heads[0].position))
        return count

    assert policies.rotation is not None  # noqa: S101 - or there would be no group.
    left = min(allotment.left[name] for name in draws)
    asked, turns = policies.rotation.deal(
        heads,
        room=left,
        scarce=allotment.scarce,
        most=allotment.budgets[SLOTS],
        draw=draw,
    )
    asks = [_ask(head, count, drawn[head.lane], policies) for head, count in asked]
    return asks, turns, len(known)


def _ask(head: Head, count: int, draws: tuple[str, ...], policies: Policies) -> Ask:
    ordered = head.lane.kind in policies.ordered
    floor = None if ordered else head.floor
    return Ask(lane=head.lane, count=count, draws=draws, floor=floor, ordered=ordered)


class _Allotment:
    """The slots, bytes and tokens that a claim has left while its asks are planned."""

    def __init__(self, room: Room, at_most: int) -> None:
        self.budgets = {
            SLOTS: min(room.slots, at_most),
            Pool.THREADS.value: room.threads,
            Pool.ISOLATED.value: room.isolated_processes,
        }
        if room.quick:
            self.budgets[FREE] = min(max(room.free, 0), at_most)
        self.left = dict(self.budgets)
        self.scarce = (room.free if room.quick else room.slots) <= at_most
        """Whether there is no slot left after this claim; else another follows at once."""
        self._divided: dict[str, int] = {}
        self._given: dict[str, int] = {}

    def draw(
        self,
        draws: tuple[str, ...],
        allowances: Iterable[Allowance],
        *,
        most: int | None = None,
        again: bool = False,
    ) -> tuple[int, tuple[str, ...]]:
        """Return how many jobs of a lane may be asked for, and the budgets that they draw on.

        A lane that is asked `again` for more jobs is already counted as holding one.
        """
        divided = []
        for each in allowances:
            if not each.shared or each.amount > 1:
                divided.append(each)
                continue
            if each.left > 0 and each.name not in self.budgets and self._has_room:
                self.budgets[each.name] = self.left[each.name] = each.left
            draws = (*draws, each.name)
        count = min([self._reach(name, again=again) for name in draws])
        count = count if most is None else min(count, most)
        for each in divided:
            count = min(count, self._divided.setdefault(each.name, each.left) // each.amount)
        if count <= 0:
            return 0, draws
        for each in divided:
            self._divided[each.name] -= count * each.amount
            self._given[each.name] = self._given.get(each.name, 0) + count * each.amount
        if not again:
            for name in draws:
                self.left[name] -= 1
        return count, draws

    def _reach(self, name: str, *, again: bool) -> int:
        return self.budgets[name] if self.left.get(name, 0) > 0 or again else 0

    def reserves(self) -> dict[str, int]:
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


class _Finds:
    """The lanes that this plan is the first to see exhausted."""

    def __init__(self, policies: Policies, most: int) -> None:
        self._policies = policies
        self._left = most

    @property
    def are_too_many(self) -> bool:
        return self._left <= 0

    def look_at(self, head: Head) -> None:
        if not self._policies.hopeful([head]):
            self._left -= 1


def _allowances(policies: Policies, room: Room, lane: Lane) -> Iterator[Allowance]:
    if lane.queue in room.queues:
        yield Allowance(queue_budget(lane.queue), room.queues[lane.queue])
        if room.queues[lane.queue] <= 0:
            return
    yield from policies.allowances(lane)


def queue_budget(queue: str) -> str:
    """Return the name of the budget that all asks for a queue with slots of its own draw on."""
    return f"queue:{queue}"


_POSITION = attrgetter("position")
_DRAWS: dict[Pool, tuple[str, ...]] = {
    Pool.LOOP: (SLOTS,),
    Pool.THREADS: (SLOTS, Pool.THREADS.value),
    Pool.ISOLATED: (SLOTS, Pool.ISOLATED.value),
}
_OF_THE_WORKER = frozenset({SLOTS, FREE, Pool.THREADS.value, Pool.ISOLATED.value})
