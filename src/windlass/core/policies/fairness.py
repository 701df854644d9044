"""Owns fairness: which key of a kind is next, by the jobs each was given relative to its weight.

Lanes of one queue, kind and priority form a group, whose keys take turns. Time in a group is
virtual: the number of jobs that a key of weight 1 was given. This is start-time fair queueing with
the claim as its server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from windlass.core.claims.lanes import FairShare, Head
from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Lane

Weights = Mapping[str, float] | Callable[[str], float]
"""The weight of a key, 1 where a mapping has none; or a function that returns it."""
MOST_TURNS = 64
"""The most quanta, each of them a turn, into which the capacity of a claim is divided."""
FEW_TURNS = 8
"""The fewest turns, where another claim follows at once: a lane costs it more than a job."""
_LEAST, _GREATEST = 0.001, 1000
_MAX_KNOWN_KEYS = 1_000
_SHORT, _FULL = 0.5, 0.9
"""Shares of its turns that a claim used: below the first, ask more keys; above the last, fewer."""
_Group = tuple[str, str, int]
_Place = tuple[float, datetime, int]


def checked_weights(kind: str, weights: Weights) -> Weights:
    """Validate weights."""
    if callable(weights):
        return weights
    given: object = weights
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigError(
            f"kind {kind!r}: weights must be a mapping of keys to numbers, or a function of a "
            f"key, got {weights!r}"
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
        cause = f"{type(error).__qualname__}: {error}"
        raise ConfigError(
            f"kind {kind!r}: computing the weight of {key!r} failed: {cause}"
        ) from error
    raise ConfigError(
        f"kind {kind!r}: a weight must be a number from {_LEAST:g} to {_GREATEST:g}, got "
        f"{weight!r} for {key!r}"
    )


class Rotation:
    """The service that every key of the fair kinds has received; the least served is next.

    A new key begins at the present: it has nothing to make up for, and waits for nobody. Jobs count
    as given when a claim asks for them, and are taken back if the claim did not return them, so
    that two claims under way do not serve the same turn.
    """

    def __init__(self, weights: Mapping[str, Callable[[str], float]]) -> None:
        self._weights = weights
        self._clocks: dict[_Group, _Clock] = {}

    @property
    def kinds(self) -> Container[str]:
        """The kinds whose keys take turns."""
        return self._weights

    def weight(self, lane: Lane) -> float:
        return self._weights[lane.kind](lane.key)

    def deal(
        self,
        heads: Sequence[Head],
        *,
        room: int,
        scarce: bool,
        most: int,
        draw: Callable[[Lane, int], int | None],
    ) -> tuple[list[tuple[Head, int]], list[FairShare]]:
        """Divide the capacity among the keys of a group, one quantum at a time to the least served.

        Returns how many jobs to ask of each key, in the order of their first turns, and how many of
        those are by its turns. Where slots are `scarce` quanta are small, since a key that is left
        out waits for a job to end; if not, they grow while keys have jobs for them. If every key
        that can be asked is asked, the last one is also asked for up to `most` more jobs, to use
        what the others leave. `draw` returns how much of a quantum a lane may have, and None if
        this claim asks no more lanes.
        """
        places = self._line_up(heads)
        line = list(places)
        heapify(line)
        clock = self._clocks.get(heads[0].lane[:3])
        quantum = -(-room // (MOST_TURNS if scarce or clock is None else clock.quanta))
        turns: dict[int, FairShare] = {}
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
            turns[number] = FairShare(lane, before + count, at)
            heapreplace(line, (at + count / self.weight(lane), position, number))
        asked = {number: turn.jobs for number, turn in turns.items()}
        if line and all(number in asked for _, _, number in line):
            # The key that was given most before is the most likely to have more.
            _, _, last = max(places[number] for _, _, number in line)
            asked[last] = asked.pop(last) + (draw(heads[last].lane, most) or 0)
        return [(heads[number], count) for number, count in asked.items()], list(turns.values())

    def tidy(self, heads: Sequence[Head]) -> None:
        """Forget the keys of a group without waiting jobs, once they are many."""
        clock = self._clocks.get(heads[0].lane[:3])
        if clock is not None and len(clock.given) > 2 * len(heads) + _MAX_KNOWN_KEYS:
            clock.forget_all_but({head.lane.key for head in heads})

    def take(self, turns: Iterable[FairShare]) -> None:
        """Count turns as given. New keys begin where the last of them did."""
        latest: dict[_Group, float] = {}
        for lane, count, began in turns:
            clock = self._clocks.setdefault(lane[:3], _Clock())
            clock.given[lane.key] = clock.of(lane.key) + count / self.weight(lane)
            latest[lane[:3]] = max(latest.get(lane[:3], 0.0), began)
        for group, began in latest.items():
            self._clocks[group].advance(began)

    def settle(self, turns: Iterable[FairShare], got: Mapping[Lane, int]) -> None:
        """Correct turns that were taken by the jobs that they returned.

        Where a key was given the rest of others, all were asked; so new keys are compared only with
        those that returned as many jobs as they were asked for.
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
        """Adapt the number of turns to the share of them that the last claim used."""
        if share < _SHORT:
            self.quanta = min(2 * self.quanta, MOST_TURNS)
        elif share > _FULL:
            self.quanta = max(self.quanta // 2, FEW_TURNS)

    def of(self, key: str) -> float:
        return max(self.given.get(key, self.now), self.now)

    def advance(self, now: float) -> None:
        self.now = max(self.now, now)

    def forget_all_but(self, keys: Collection[str]) -> None:
        # A forgotten key was given at most one claim too much.
        self.given = {key: at for key, at in self.given.items() if key in keys}


class _Outcome:
    def __init__(self) -> None:
        self.dealt = 0
        self.brought = 0
        self.rest = False
        """Whether a key was given the rest of others."""
        self.least = math.inf
        """The virtual time up to which those keys were served that returned all but a job of their
        ask."""
