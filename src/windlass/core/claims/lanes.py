"""Owns lanes as a worker sees them: heads, sweeps, asks and claims."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from windlass.core.jobs.job import Job, Lane

Queues = frozenset[str] | None
"""The queues whose lanes are looked at; None: those of all."""


class Floor(NamedTuple):
    """A place in a lane, by due time and arrival, below which nothing is believed to wait."""

    due_at: datetime
    seq: int


class Head(Struct, frozen=True, kw_only=True, gc=False):
    """The oldest pending job of a lane, or, with a floor, the presumed one."""

    lane: Lane
    position: datetime
    floor: Floor | None = None


class Sweep(Struct, frozen=True, kw_only=True):
    """The heads of all lanes that have pending jobs, or of those of some queues.

    `next_due` is when the earliest scheduled job of any queue is due; `mark` names the moment of
    this sweep, and `Store.wait(mark)` returns once anything may have changed since.
    """

    heads: tuple[Head, ...]
    next_due: datetime | None
    now: datetime
    mark: int


class Ask(Struct, frozen=True, kw_only=True):
    """A request for at most `count` jobs of a lane, within its budgets.

    A store may begin at the `floor`, so as not to walk past deleted rows; jobs below it are left to
    the next sweep.
    """

    lane: Lane
    count: int
    draws: tuple[str, ...] = ()
    floor: Floor | None = None
    ordered: bool = False
    """Whether its jobs must not overtake each other: only the oldest one may be claimed."""


class FairShare(NamedTuple):
    """The jobs that a key gets by its turns, and the virtual time at which the last turn began."""

    lane: Lane
    jobs: int
    began: float


class Claim(Struct, frozen=True, kw_only=True):
    """Asks in the order in which they are met, and the budgets that they share."""

    asks: tuple[Ask, ...]
    budgets: dict[str, int] = {}
    reserves: dict[str, int] = {}
    """How much of each allowance the claim may use; stores ignore it."""
    turns: tuple[FairShare, ...] = ()
    """The turns of fair keys in this claim; stores ignore them."""
    cut: bool = False
    """Whether some lanes were not considered yet; stores ignore it."""
    others: bool = False
    """Whether some keys of a group have their turn later; stores ignore it."""


class StandingAsk(Struct, frozen=True, kw_only=True):
    """A request for the next job of some kinds, which a waiting worker leaves in the store.

    A store that meets it claims one job at most, for this worker and under this token, and calls
    `take` with it in the worker's event loop. Stores may ignore it: the worker sweeps anyway.
    """

    worker: str
    token: int
    kinds: tuple[str, ...]
    take: Callable[[Job], None]
