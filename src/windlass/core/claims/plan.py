"""Owns the decision what to claim: `plan(heads, policies, room)` turns lanes into asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter

from msgspec import Struct, field

from windlass.core.claims.allotment import Allotment, Allowance
from windlass.core.claims.lanes import Ask, Claim, FairShare, Head
from windlass.core.claims.room import SLOTS, Pool, Room, queue_budget
from windlass.core.claims.shares import alike, share_of
from windlass.core.jobs.job import AGING, Lane
from windlass.core.policies.fairness import Rotation
from windlass.core.policies.pauses import Pauses

MOST_SPENT = 500
"""How many exhausted lanes a plan may find: the event loop must not block on them."""
_AHEAD = 2_001
"""Steps of priority by which a target in jeopardy is ahead: more than there are priorities."""


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

    A lane may hold fewer jobs than asked for, so each is asked for all that its budgets allow, at
    once or after its share; the claim draws them down in this order. Every lane that was seen holds
    a job, so no more of them are asked than would use up a budget with one job each. Lanes whose
    budgets a claim cannot name any more are left to the next. Where many exhausted lanes are
    discovered, the claim is `cut`, and the next plan continues from there, unless it is `thorough`.
    """
    draft = _Draft(policies, room, at_most, len(heads) + 1 if thorough else MOST_SPENT)
    slots = draft.allotment.budgets[SLOTS]
    for group in alike(_by_urgency(heads, policies, now), slots, policies.targets):
        if draft.is_done:
            break
        if len(group) == 1:
            draft.ask(group[0])
            continue
        share = share_of(slots, len(group))
        # Keys in turn are never among those that share.
        lanes = [unit for unit in group if isinstance(unit, Head)]
        for head in [head for head in lanes if draft.ask(head, share)]:
            draft.ask_rest(head, share)
    return draft.claim()


class _Draft:
    """The asks of a claim that is being planned."""

    def __init__(self, policies: Policies, room: Room, at_most: int, most_spent: int) -> None:
        self.allotment = Allotment(room, at_most)
        self._policies = policies
        self._room = room
        self._finds = _Finds(policies, most_spent)
        self._asks: list[Ask] = []
        self._turns: list[FairShare] = []
        self._has_others = False
        self._known: dict[Lane, list[Allowance]] = {}

    @property
    def is_done(self) -> bool:
        return self.allotment.left[SLOTS] <= 0 or self._finds.are_too_many

    def ask(self, unit: Head | Sequence[Head], share: int | None = None) -> bool:
        """Ask for jobs of a lane, or of keys in turn; return whether only the share bounds them."""
        head = unit if isinstance(unit, Head) else unit[0]
        draws = self._open_budgets(head)
        if draws is None:
            return False
        if not isinstance(unit, Head):
            self._ask_in_turn(unit, draws)
            return False
        allowances = list(self._allowances(head.lane))
        if share is not None:
            self._known[head.lane] = allowances
        count, draws = self.allotment.draw(draws, allowances, most=share)
        if count > 0:
            self._add(head, count, draws)
        else:
            self._finds.look_at(head)
        return count == share and head.lane.kind not in self._policies.ordered

    def ask_rest(self, head: Head, share: int) -> None:
        """Ask a lane for what may be left behind its share."""
        draws = self._open_budgets(head)
        if draws is None:
            return
        most = min(self.allotment.budgets[name] for name in draws) - share
        # Gates answer once for both asks of a lane, since they look at the time.
        allowances = self._known.pop(head.lane)
        count, draws = self.allotment.draw(draws, allowances, most=most, again=True)
        if count > 0:
            self._add(head, count, draws)

    def _open_budgets(self, head: Head) -> tuple[str, ...] | None:
        """Return the budgets that a lane draws on; None if one is used up, or the plan is cut."""
        kind, left = head.lane.kind, self.allotment.left
        draws = self._room.drawn_by(kind, self._policies.kinds[kind])
        for name in draws:
            if left[name] <= 0:
                return None
        return None if self._finds.are_too_many else draws

    def _ask_in_turn(self, heads: Sequence[Head], draws: tuple[str, ...]) -> None:
        drawn: dict[Lane, tuple[str, ...]] = {}
        known: dict[Lane, list[Allowance]] = {}

        def draw(lane: Lane, most: int) -> int | None:
            if lane not in known:
                if self._finds.are_too_many:
                    return None
                known[lane] = list(self._allowances(lane))
            again = lane in drawn
            count, names = self.allotment.draw(draws, known[lane], most=most, again=again)
            if count > 0:
                drawn[lane] = names
            elif not again:
                self._finds.look_at(Head(lane=lane, position=heads[0].position))
            return count

        assert self._policies.rotation is not None  # noqa: S101 - or there would be no group.
        asked, turns = self._policies.rotation.deal(
            heads,
            room=min(self.allotment.left[name] for name in draws),
            scarce=self.allotment.scarce,
            most=self.allotment.budgets[SLOTS],
            draw=draw,
        )
        for head, count in asked:
            self._add(head, count, drawn[head.lane])
        self._turns += turns
        self._has_others = self._has_others or len(known) < len(heads)

    def _add(self, head: Head, count: int, draws: tuple[str, ...]) -> None:
        ordered = head.lane.kind in self._policies.ordered
        floor = None if ordered else head.floor
        ask = Ask(lane=head.lane, count=count, draws=draws, floor=floor, ordered=ordered)
        self._asks.append(ask)

    def _allowances(self, lane: Lane) -> Iterator[Allowance]:
        queues = self._room.queues
        if lane.queue in queues:
            yield Allowance(queue_budget(lane.queue), queues[lane.queue])
            if queues[lane.queue] <= 0:
                return
        yield from self._policies.allowances(lane)

    def claim(self) -> Claim:
        """Return the claim that was planned."""
        return Claim(
            asks=tuple(self._asks),
            budgets=self.allotment.budgets,
            reserves=self.allotment.reserves(),
            turns=tuple(self._turns),
            cut=self._finds.are_too_many,
            others=self._has_others,
        )


def _by_urgency(
    heads: Sequence[Head], policies: Policies, now: datetime | None
) -> Sequence[Head | Sequence[Head]]:
    """Return the heads of lanes that may run, the heads of a fair group in one entry.

    Keys that take turns are as urgent as the oldest of them. Without `now`, no target is in
    jeopardy.
    """
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


_POSITION = attrgetter("position")
