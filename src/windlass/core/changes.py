"""Owns what can happen to jobs and records as a whole: `Changes`, decided under the records' lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar
from uuid import UUID

from windlass.core.job import Job, Json, NewJob
from windlass.core.settle import Transition
from windlass.core.states import State

T = TypeVar("T")


class Verb(StrEnum):
    """What may be done to a job that nobody's token protects."""

    CANCEL = "cancel"
    RETRY = "retry"
    REDRIVE = "redrive"
    PARK = "park"
    UNPARK = "unpark"
    PURGE = "purge"


FROM = MappingProxyType(
    {
        Verb.CANCEL: frozenset({State.SCHEDULED, State.PENDING, State.RUNNING}),
        Verb.RETRY: frozenset({State.SCHEDULED}),
        Verb.REDRIVE: frozenset({State.DEAD}),
        Verb.PARK: frozenset({State.SCHEDULED, State.PENDING}),
        Verb.UNPARK: frozenset({State.SCHEDULED}),
        Verb.PURGE: frozenset({State.DEAD}),
    }
)
"""The states in which each verb does anything; a store refuses it in all others."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A verb on a job.

    *Cancel* ends a waiting job, and asks a running one to end. *Retry* makes a scheduled job due now.
    *Redrive* gives a dead job a new life, with its failures and crashes forgotten and its history
    kept. *Park* makes a waiting job wait for `waiting_for`, whatever its due time; *unpark* ends that.
    *Purge* deletes a dead job.
    """

    verb: Verb
    id: UUID
    reason: str = ""
    waiting_for: str = ""


@dataclass(frozen=True, kw_only=True)
class Changes(Generic[T]):
    """Changes that happen together or not at all, and the `answer` for whoever asked for them.

    A settle whose fence does not match undoes everything; a move that the job's state refuses does
    nothing and is reported. A record set to None is deleted.
    """

    answer: T
    records: Mapping[str, Json | None] = field(default_factory=lambda: MappingProxyType({}))
    enqueue: Sequence[NewJob] = ()
    settle: Sequence[Transition] = ()
    moves: Sequence[Move] = ()


@dataclass(frozen=True, kw_only=True)
class Applied(Generic[T]):
    """What came of changes. `moved` holds, for each move in order, the job after it or None."""

    answer: T
    moved: tuple[Job | None, ...] = ()


Decide = Callable[[Mapping[str, Json], datetime], Changes[T]]
"""A pure reducer: the named records that exist, and the store's time, to what shall happen.

It may be called more than once, so it has no effects of its own.
"""
