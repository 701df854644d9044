"""Owns the changes that are made together under the lock of records, and their reducers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Generic, TypeVar

from msgspec import Struct, field

from windlass.core.jobs.job import Job, NewJob
from windlass.core.jobs.moves import Move
from windlass.core.jobs.settle import Transition
from windlass.core.records import Json, News

T = TypeVar("T")


class MoveCount(Struct, frozen=True, kw_only=True):
    """A record to which the store adds the number of moves of the same change that happened.

    `field`, a plain name, is the number's place. If none happened, the record is written only with
    `always`.
    """

    record: Json
    field: str = "count"
    always: bool = False

    @property
    def before(self) -> int:
        """The number to which is added."""
        return int(self.record.get(self.field, 0))

    @property
    def rest(self) -> Json:
        """The record without the number."""
        return {name: value for name, value in self.record.items() if name != self.field}


class Changes(Struct, Generic[T], frozen=True, kw_only=True):
    """Changes that happen together or not at all, and the `answer` for the caller.

    A settle whose fence does not match undoes everything; a move that the job's state refuses does
    nothing and is reported. A record set to None is deleted. An alarm is set for a record that
    exists then, or removed by None; an alarm that is not named here stays as it is. `unpark` names
    keys: every job that waits for one of them is unparked. `move_counts` are records, too.
    """

    answer: T
    records: Mapping[str, Json | None] = field(default_factory=lambda: MappingProxyType({}))
    enqueue: Sequence[NewJob] = ()
    settle: Sequence[Transition] = ()
    moves: Sequence[Move] = ()
    alarms: Mapping[str, datetime | None] = field(default_factory=lambda: MappingProxyType({}))
    unpark: Sequence[str] = ()
    move_counts: Mapping[str, MoveCount] = field(default_factory=lambda: MappingProxyType({}))

    def counted(self, moved: Sequence[Job | None]) -> dict[str, Json]:
        """Return the records of `move_counts`, with the number of moves that happened."""
        number = sum(job is not None for job in moved)
        return {
            name: {**each.rest, each.field: each.before + number}
            for name, each in self.move_counts.items()
            if number or each.always
        }


class Applied(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of changes. `moved` holds, for each move in order, the job after it or None."""

    answer: T
    moved: tuple[Job | None, ...] = ()


Decide = Callable[[Mapping[str, Json], datetime], Changes[T]]
"""A pure reducer from the named records that exist, and the store's time, to changes.

A store may call it more than once, so it has no effects of its own.
"""


Hear = Callable[[Mapping[str, Json], Sequence[News], datetime], Changes[T]]
"""A reducer that also gets the news of the named topics, oldest first."""
