"""Owns what stands between a lane and its claim: limits and breakers, each of which is a `Gate`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ParamSpec

from windlass.core.job import Head, Job, Lane
from windlass.core.outcomes import Outcome
from windlass.core.plan import Allowance
from windlass.core.settle import Transition
from windlass.runtime.clocks import clock_of
from windlass.runtime.service import Service

P = ParamSpec("P")


class Gate(Service):
    """Lets a part of the jobs through, or none for a while.

    It ticks to draw what it may let through. When it is stopped the worker has drained, and it
    gives back what it still has.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now: Callable[[], float] = clock_of(asyncio.get_running_loop())

    def go_by(self, now: Callable[[], float]) -> None:
        """Measure time by another clock than the loop's, in seconds; before the first round."""
        self._now = now

    def looks_at(self) -> float | None:
        """Return when it may let through what it holds back now, by its clock; None: unknown."""
        return None

    def allowances(self, lane: Lane) -> Iterable[Allowance]:
        """Say how much may start of a lane now, less what is reserved; none: as much as there is.

        To be asked means that the lane has a job, and that the worker has room for it.
        """
        raise NotImplementedError

    def lets(self, lane: Lane) -> bool:
        """Say whether something of a lane could start, as far as is known; nothing comes of it."""
        del lane
        return True

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        """Leave out lanes that are known to be allowed nothing, so that to ask again is in vain."""
        return list(heads)

    def bars(self, lane: Lane) -> bool:
        """Say whether nothing of a lane may start, as if its queue were paused.

        Neither is such a lane asked for, nor does anybody wait for it who works off what there is.
        """
        del lane
        return False

    def reserve(self, reserves: Mapping[str, int]) -> None:
        """Keep for a claim under way what it may use up; names of other gates are among them."""
        raise NotImplementedError

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        """Take notice that the claim is over, just before the jobs that it brought begin."""
        raise NotImplementedError

    def began(self, job: Job) -> None:
        """Take notice that a job that was claimed is about to start."""
        raise NotImplementedError

    def ended(self, job: Job, outcome: Outcome | Transition) -> None:
        """Take notice that its run has ended, or that it was given back unstarted."""
        raise NotImplementedError

    def settled(self, job: Job, move: Transition | None) -> None:
        """Take notice that what became of it is in the store; None: others had a say in that."""

    def doubt(self, reserves: Mapping[str, int]) -> None:
        """Take notice that nobody knows what a claim has brought; its end comes after this."""


class Gates:
    """All gates, as if they were one."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)
        # Called for every job, so that one that is alone is called by itself.
        self.began: Callable[[Job], None] = _each([gate.began for gate in gates])
        """Tells them of a start."""
        self.ended: Callable[[Job, Outcome | Transition], None] = _each(
            [gate.ended for gate in gates]
        )
        """Tells them of an end."""
        self.settled: Callable[[Job, Transition | None], None] = _each(
            [gate.settled for gate in gates]
        )
        """Tells them what is in the store."""

    def __bool__(self) -> bool:
        return bool(self._gates)

    def allowances(self, lane: Lane) -> Iterator[Allowance]:
        """Return what they allow of a lane.

        Whoever comes after one that allows nothing is not asked: else two workers could each keep
        what the other needs besides.
        """
        for gate in self._gates:
            for each in gate.allowances(lane):
                yield each
                if each.left < each.amount:
                    return

    def lets(self, lane: Lane) -> bool:
        """Say whether all of them would let something of a lane start, as far as they know."""
        return all(gate.lets(lane) for gate in self._gates)

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        """Leave out lanes of which one of them is known to allow nothing."""
        for gate in self._gates:
            heads = gate.unspent(heads)
        return list(heads)

    def bars(self, lane: Lane) -> bool:
        """Say whether one of them lets nothing of a lane start."""
        return any(gate.bars(lane) for gate in self._gates)

    def reserve(self, reserves: Mapping[str, int]) -> None:
        """Keep for a claim under way what it may use up."""
        for gate in self._gates:
            gate.reserve(reserves)

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        """Let go of what was kept for a claim."""
        for gate in self._gates:
            gate.unreserve(reserves)

    def doubt(self, reserves: Mapping[str, int]) -> None:
        """Tell them of a claim of unknown fate."""
        for gate in self._gates:
            gate.doubt(reserves)


def _each(calls: Sequence[Callable[P, None]]) -> Callable[P, None]:
    """Return one call that makes all of them."""
    if len(calls) == 1:
        return calls[0]

    def call(*told: P.args, **named: P.kwargs) -> None:
        for each in calls:
            each(*told, **named)

    return call
