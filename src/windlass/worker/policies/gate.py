"""Owns the gates between a lane and its claim: limits and breakers are each a `Gate`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ParamSpec

from windlass.core.claims.allotment import Allowance
from windlass.core.claims.lanes import Head
from windlass.core.jobs.job import Job, Lane
from windlass.core.jobs.outcomes import Outcome
from windlass.core.jobs.settle import Transition
from windlass.process.clocks import clock_of
from windlass.process.service import Service

P = ParamSpec("P")


class Gate(Service):
    """Lets some of the jobs start, or none for a while.

    Its ticks obtain what it may let start. It is stopped after the worker has drained, and then
    gives back what it still holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now: Callable[[], float] = clock_of(asyncio.get_running_loop())

    def go_by(self, now: Callable[[], float]) -> None:
        """Measure time in seconds by another clock than the loop's; called before the
        first tick.
        """
        self._now = now

    def looks_at(self) -> float | None:
        """Return when jobs that are held back may start, by the gate's clock; None if unknown."""
        return None

    def allowances(self, lane: Lane) -> Iterable[Allowance]:
        """Return how many jobs of a lane may start now, less what is reserved; empty: no bound.

        Being asked means that the lane has a job, and that the worker has room for it.
        """
        raise NotImplementedError

    def lets(self, lane: Lane) -> bool:
        """Return whether a job of a lane could start, as far as is known; changes nothing."""
        del lane
        return True

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        """Leave out lanes that are known to be allowed nothing, so that asking again is useless."""
        return list(heads)

    def bars(self, lane: Lane) -> bool:
        """Return whether no job of a lane may start, as if its queue were paused.

        Such a lane is not claimed from, and a burst worker does not wait for it.
        """
        del lane
        return False

    def may_bar(self, kind: str) -> bool:
        """Return whether the gate may keep a job of a kind from starting, as far as is known.

        If not, such a job may be claimed without asking for what is allowed.
        """
        del kind
        return True

    def reserve(self, reserves: Mapping[str, int]) -> None:
        """Reserve what a claim under way may use; names that belong to other gates are ignored."""
        raise NotImplementedError

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        """Release the reservation of a claim that is over, just before its jobs begin."""
        raise NotImplementedError

    def began(self, job: Job) -> None:
        """Record that a claimed job is about to start."""
        raise NotImplementedError

    def ended(self, job: Job, outcome: Outcome | Transition) -> None:
        """Record that a run has ended, or that its job was given back unstarted."""
        raise NotImplementedError

    def settled(self, job: Job, move: Transition | None) -> None:
        """Record that a job's transition is stored; None if the write was rejected."""

    def doubt(self, reserves: Mapping[str, int], token: int) -> None:
        """Record that the fate of the claim under this token is unknown; its `unreserve` follows.

        Until `resolve` is called, it may have jobs that this worker does not know.
        """

    @property
    def doubtful(self) -> set[int]:
        """The tokens of claims whose fate is unknown."""
        return set()

    def resolve(self, tokens: Collection[int]) -> None:
        """Record that the store has no job under these tokens."""


class Gates:
    """All gates, used as one."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)
        # Called for every job, so a single gate is called directly.
        self.began: Callable[[Job], None] = _each([gate.began for gate in gates])
        """Notifies the gates of a start."""
        self.ended: Callable[[Job, Outcome | Transition], None] = _each(
            [gate.ended for gate in gates]
        )
        """Notifies the gates of an end."""
        self.settled: Callable[[Job, Transition | None], None] = _each(
            [gate.settled for gate in gates]
        )
        """Notifies the gates of a stored transition."""

    def __bool__(self) -> bool:
        return bool(self._gates)

    def allowances(self, lane: Lane) -> Iterator[Allowance]:
        """Return what all gates allow of a lane.

        Gates after one that allows nothing are not asked: otherwise two workers could each keep
        what the other one needs as well.
        """
        for gate in self._gates:
            for each in gate.allowances(lane):
                yield each
                if each.left < each.amount:
                    return

    def lets(self, lane: Lane) -> bool:
        """Return whether all gates would let a job of a lane start, as far as they know."""
        return all(gate.lets(lane) for gate in self._gates)

    def unspent(self, heads: Iterable[Head]) -> list[Head]:
        """Leave out lanes of which a gate is known to allow nothing."""
        for gate in self._gates:
            heads = gate.unspent(heads)
        return list(heads)

    def bars(self, lane: Lane) -> bool:
        """Return whether a gate bars a lane."""
        return any(gate.bars(lane) for gate in self._gates)

    def may_bar(self, kind: str) -> bool:
        """Return whether a gate may keep a job of a kind from starting."""
        return any(gate.may_bar(kind) for gate in self._gates)

    def reserve(self, reserves: Mapping[str, int]) -> None:
        """Reserve what a claim under way may use."""
        for gate in self._gates:
            gate.reserve(reserves)

    def unreserve(self, reserves: Mapping[str, int]) -> None:
        """Release the reservation of a claim."""
        for gate in self._gates:
            gate.unreserve(reserves)

    def doubt(self, reserves: Mapping[str, int], token: int) -> None:
        """Notify the gates of a claim whose fate is unknown."""
        for gate in self._gates:
            gate.doubt(reserves, token)

    @property
    def doubtful(self) -> set[int]:
        """The tokens of claims whose fate is unknown."""
        return {token for gate in self._gates for token in gate.doubtful}

    def resolve(self, tokens: Collection[int]) -> None:
        """Notify the gates that the store has no job under these tokens."""
        for gate in self._gates:
            gate.resolve(tokens)


def _each(calls: Sequence[Callable[P, None]]) -> Callable[P, None]:
    if len(calls) == 1:
        return calls[0]

    def call(*arguments: P.args, **named: P.kwargs) -> None:
        for each in calls:
            each(*arguments, **named)

    return call
