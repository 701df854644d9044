"""Owns fairness: whose turn it is among the keys of a kind, by what each was given for its weight.

Lanes of one queue, kind and priority form a group, whose keys take turns. Time in a group is
virtual: it is the number of jobs that a key of weight 1 was given. This is start-time fair queueing
with the claim as its server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from windlass.core.errors import ConfigError
from windlass.core.job import Head, Lane, Turn

Weights = Mapping[str, float] | Callable[[str], float]
"""The weight of a key, 1 where a mapping has none; or a function that tells it."""
MOST_TURNS = 64
"""Into how many quanta the room of a claim is divided, each of which is a turn, at most."""
FEW_TURNS = 8
"""The fewest, where another claim follows at once: a lane more costs it more than a job more."""
_LEAST, _GREATEST = 0.001, 1000
_FORGOTTEN = 1_000
_SHORT, _FULL = 0.5, 0.9
"""Which share of its turns a claim uses when it should have asked more keys, and when fewer."""
_Group = tuple[str, str, int]
_Place = tuple[float, datetime, int]


def checked_weights(kind: str, weights: Weights) -> Weights:
    """Return weights as they were given.

    Raises:
        ConfigError: they are neither a function nor a mapping of keys to numbers.
    """
    if callable(weights):
        return weights
    given: object = weights
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigError(
            f"kind {kind!r}: weights are a mapping of keys, which are text, to numbers, or a "
            f"function of a key, and {weights!r} is neither"
        )
    return {key: weight_of(kind, weights, key) for key in weights}


def weight_of(kind: str, weights: Weights, key: str) -> float:
    """Return the weight of a key.

    Raises:
        ConfigError: it is no number that could be one, or the function failed.
    """
    try:
        weight = weights(key) if callable(weights) else weights.get(key, 1.0)
        if not isinstance(weight, bool) and _LEAST <= float(weight) <= _GREATEST:
            return float(weight)
    except Exception as error:
        told = f"{type(error).__qualname__}: {error}"
        raise ConfigError(f"kind {kind!r}: the weight of {key!r} cannot be told: {told}") from error
    raise ConfigError(
        f"kind {kind!r}: a weight is a number from {_LEAST:g} to {_GREATEST:g}, and that of "
        f"{key!r} is {weight!r}"
    )


class Rotation:
    """What every key of the fair kinds was given; who was given least is next.

    A key that comes anew begins at the present: it has nothing to make up for, and waits for
    nobody. What a claim asks for counts as given at once, and what it did not bring is taken back,
    so that two claims under way do not serve the same turn.
    """

    def __init__(self, weights: Mapping[str, Callable[[str], float]]) -> None:
        self._weights = weights
        self._clocks: dict[_Group, _Clock] = {}

    @property
    def kinds(self) -> Container[str]:
        """The kinds whose keys take turns."""
        return self._weights

    def weight(self, lane: Lane) -> float:
        """Return the weight of a lane's key."""
        return self._weights[lane.kind](lane.key)

    def deal(
        self,
        heads: Sequence[Head],
        *,
        room: int,
        scarce: bool,
        most: int,
        draw: Callable[[Lane, int], int | None],
    ) -> tuple[list[tuple[Head, int]], list[Turn]]:
        """Deal out room to the keys of a group, one quantum at a time to who was given least.

        Returns how much to ask of each key, in the order of their first turns, and how much of that
        is by its turns. Where slots are `scarce` quanta are small, since who is left out waits for
        a job to end; if not, they grow for as long as keys have so many jobs. Where every key that
        can be asked is, the last of them is asked for `most` more, which is what the others leave.
        `draw` says how much of a quantum a lane may have, and None if no more are to be asked in
        this claim.
        """
        places = self._line_up(heads)
        line = list(places)
        heapify(line)
        clock = self._clocks.get(heads[0].lane[:3])
        quantum = -(-room // (MOST_TURNS if scarce or clock is None else clock.quanta))
        turns: dict[int, Turn] = {}
        while line and room > 0:
            at, position, number = line[0]
            lane = heads[number].lane
            count = draw(lane, min(quantum, room))
            if count is None:
                break
            if count <= 0:
                heappop(line)
                continue
            room -= count
            before = turns[number].jobs if number in turns else 0
            turns[number] = Turn(lane, before + count, at)
            heapreplace(line, (at + count / self.weight(lane), position, number))
        asked = {number: turn.jobs for number, turn in turns.items()}
        if line and all(number in asked for _, _, number in line):
            # Who was given most before is most likely to have more.
            _, _, last = max(places[number] for _, _, number in line)
            asked[last] = asked.pop(last) + (draw(heads[last].lane, most) or 0)
        return [(heads[number], count) for number, count in asked.items()], list(turns.values())

    def tidy(self, heads: Sequence[Head]) -> None:
        """Forget the keys of a group that wait for nothing, once they are many."""
        clock = self._clocks.get(heads[0].lane[:3])
        if clock is not None and len(clock.given) > 2 * len(heads) + _FORGOTTEN:
            clock.forget_all_but({head.lane.key for head in heads})

    def take(self, turns: Iterable[Turn]) -> None:
        """Count turns as given. What comes anew from now on begins where the last of them did."""
        latest: dict[_Group, float] = {}
        for lane, count, began in turns:
            clock = self._clocks.setdefault(lane[:3], _Clock())
            clock.given[lane.key] = clock.of(lane.key) + count / self.weight(lane)
            latest[lane[:3]] = max(latest.get(lane[:3], 0.0), began)
        for group, began in latest.items():
            self._clocks[group].advance(began)

    def settle(self, turns: Iterable[Turn], got: Mapping[Lane, int]) -> None:
        """Correct turns that were taken by what they brought.

        Where one was given what others left, all were asked; so it is only those who gave as many
        as they were asked for that anybody who comes anew may be held against.
        """
        groups: dict[_Group, _Outcome] = {}
        for lane, count, _ in turns:
            group, brought = lane[:3], got.get(lane, 0)
            clock, step = self._clocks[group], 1 / self.weight(lane)
            given = clock.given.get(lane.key, clock.now) + (brought - count) * step
            clock.given[lane.key] = given
            outcome = groups.setdefault(group, _Outcome())
            outcome.dealt += count
            outcome.brought += min(brought, count)
            outcome.rest |= brought > count
            if brought >= count:
                outcome.least = min(given - step, outcome.least)
        for group, outcome in groups.items():
            clock = self._clocks[group]
            if outcome.rest:
                clock.advance(outcome.least)
            clock.adapt(outcome.brought / outcome.dealt)

    def _line_up(self, heads: Sequence[Head]) -> list[_Place]:
        """Return the place of every head of a group: the least is next, of equals the oldest."""
        clock = self._clocks.get(heads[0].lane[:3])
        if clock is None:
            return [(0.0, head.position, number) for number, head in enumerate(heads)]
        now, given = clock.now, clock.given
        return [
            (at if (at := given.get(head.lane[3], now)) > now else now, head.position, number)
            for number, head in enumerate(heads)
        ]


class _Clock:
    """The virtual time of a group, and the time up to which each key was served."""

    def __init__(self) -> None:
        self.now = 0.0
        self.given: dict[str, float] = {}
        self.quanta = MOST_TURNS

    def adapt(self, share: float) -> None:
        """Take notice which share of the turns of a claim was used: many short of jobs, or none."""
        if share < _SHORT:
            self.quanta = min(2 * self.quanta, MOST_TURNS)
        elif share > _FULL:
            self.quanta = max(self.quanta // 2, FEW_TURNS)

    def of(self, key: str) -> float:
        return max(self.given.get(key, self.now), self.now)

    def advance(self, now: float) -> None:
        self.now = max(self.now, now)

    def forget_all_but(self, keys: Collection[str]) -> None:
        """Forget keys that wait for nothing: they were given no more than a claim too much."""
        self.given = {key: at for key, at in self.given.items() if key in keys}


class _Outcome:
    """What the turns of a group brought in one claim."""

    def __init__(self) -> None:
        self.dealt = 0
        self.brought = 0
        self.rest = False
        """Whether one was given what others left."""
        self.least = math.inf
        """Up to when those were served who gave as many as they were asked for, all but a job."""
