"""Owns the log of a job's steps: its entries, their combined meaning, and the order of a run's.

The log is append-only. An entry may be in it twice, if the store went away while it was written: a
repeated entry changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from windlass.core.errors import StepError, StepsChanged
from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.states import State
from windlass.core.values.names import check_name
from windlass.core.values.text import storable

_NULL = Raw(b"null")
_ERROR_LIMIT = 1_000


class _Entry(Struct, frozen=True, kw_only=True, tag_field="entry", omit_defaults=True):
    pass


class Started(_Entry, frozen=True, kw_only=True, tag="started"):
    """A step that has an undo is about to begin: from here on there is something to undo."""

    name: str
    main: bool = True
    """Whether it was called in the handler's own task, whose steps keep their order."""


class Done(_Entry, frozen=True, kw_only=True, tag="done"):
    """A step has returned; its result is JSON."""

    name: str
    result: Raw = _NULL
    seconds: float = 0.0
    main: bool = True


class Failed(_Entry, frozen=True, kw_only=True, tag="failed"):
    """A step has raised; a later attempt, or its handler, may try again."""

    name: str
    error: str
    seconds: float = 0.0


class Slept(_Entry, frozen=True, kw_only=True, tag="slept"):
    """The job has slept; the next run continues."""

    name: str
    main: bool = True


class Waiting(_Entry, frozen=True, kw_only=True, tag="waiting"):
    """The job has begun to wait for an event, until a time at the longest."""

    name: str
    until: datetime
    main: bool = True


class Waited(_Entry, frozen=True, kw_only=True, tag="waited"):
    """The job has waited for an event, which came with a result, or timed out."""

    name: str
    event: UUID | None = None
    """The id of the event; None: timed out."""
    result: Raw = _NULL
    main: bool = True


class Undoing(_Entry, frozen=True, kw_only=True, tag="undoing"):
    """From here on the steps are undone; the intended end of the job is kept for the end."""

    state: State
    reason: str = ""
    error: ErrorInfo | None = None
    crashes: int = 0
    """Failures and crashes before the compensation, which its undos are not charged with."""


class Undone(_Entry, frozen=True, kw_only=True, tag="undone"):
    """A step was undone."""

    name: str
    seconds: float = 0.0


class UndoFailed(_Entry, frozen=True, kw_only=True, tag="undo failed"):
    """An undo failed; if `for_good`, a person decides whether it is tried again."""

    name: str
    error: str
    failures: int = 1
    for_good: bool = False


class Lived(_Entry, frozen=True, kw_only=True, tag="lived"):
    """The job was undone and begins anew: earlier entries do not count any more."""

    life: int
    """How often that happened."""
    events: tuple[UUID, ...] = ()
    """The events that it had."""


class Over(_Entry, frozen=True, kw_only=True, tag="over"):
    """Everything is undone."""


Finished = Done | Slept | Waited
Entry = Started | Finished | Failed | Waiting | Undoing | Undone | UndoFailed | Over | Lived
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def written(entry: Entry) -> str:
    return _encoder.encode(entry).decode()


def read(entry: str) -> Entry:
    """Read an entry from a log.

    Raises:
        ValueError: it is none that this release knows.
    """
    return _decoder.decode(entry)


def in_brief(error: ErrorInfo) -> str:
    """Return the description of an error in an entry; the whole of it is in the job's history."""
    return storable(str(error), _ERROR_LIMIT)


class Steps:
    """The combined meaning of all entries of a log."""

    def __init__(self, log: Iterable[str] = ()) -> None:
        self.entries: list[Entry] = []
        self.finished: dict[str, Finished] = {}
        """The finished steps, by name; they are not run again."""
        self.order: list[str] = []
        """The steps of the handler's own task, in their first order."""
        self.undoable: list[str] = []
        """The steps that have an undo, in the order of their start, finished or not."""
        self.deadlines: dict[str, datetime] = {}
        """Until when the job waits for an event, by the name of the wait."""
        self.events: set[UUID] = set()
        """The events that it has had."""
        self.undoing: Undoing | None = None
        self.undone: list[str] = []
        self.life = 0
        """How often the job was undone, and began anew."""
        self.unreadable = 0
        """How many entries are of another release and ignored."""
        self._undo_failures: dict[str, int] = {}
        for entry in log:
            self._read(entry)

    @property
    def names(self) -> list[str]:
        """All steps that have begun to have effects."""
        return list(dict.fromkeys((*self.order, *self.undoable, *self.finished)))

    @property
    def distance(self) -> int:
        """How far the job has come: a step counts when it begins, and when it ends."""
        return len(self.names) + len(self.finished)

    @property
    def to_undo(self) -> list[str]:
        """The steps left to undo, in the order of that: the last start comes first."""
        return [name for name in reversed(self.undoable) if name not in self.undone]

    def undo_failures(self, name: str) -> int:
        """Return how often an undo failed since it was last given up."""
        return self._undo_failures.get(name, 0)

    def next_life(self) -> tuple[str, ...]:
        """Return the log of a job that was undone, and begins anew."""
        return (written(Lived(life=self.life + 1, events=tuple(sorted(self.events)))),)

    def _read(self, entry: str) -> None:
        try:
            self._take(read(entry))
        except ValueError:
            self.unreadable += 1

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)
        match entry:
            case Started(name=name, main=main):
                if name not in self.undoable:
                    self.undoable.append(name)
                self._place(name, main=main)
            case Done() | Slept() | Waited():
                self.finished.setdefault(entry.name, entry)
                self._place(entry.name, main=entry.main)
                if isinstance(entry, Waited) and entry.event is not None:
                    self.events.add(entry.event)
            case Waiting(name=name, until=until, main=main):
                self.deadlines.setdefault(name, until)
                self._place(name, main=main)
            case Lived(life=life, events=events):
                self.life = max(self.life, life)
                self.events.update(events)
            case _:
                self._take_undo(entry)

    def _take_undo(self, entry: Entry) -> None:
        match entry:
            case Undoing():
                self.undoing = self.undoing or entry
            case Undone(name=name):
                if name not in self.undone:
                    self.undone.append(name)
            case UndoFailed(name=name, for_good=for_good):
                self._undo_failures[name] = 0 if for_good else self.undo_failures(name) + 1

    def _place(self, name: str, *, main: bool) -> None:
        if main and name not in self.order:
            self.order.append(name)


class Walk:
    """One run along the recorded steps, which knows for each step whether it was recorded.

    Steps of the handler's own task come in the recorded order; those of other tasks, for which
    there is no order, are known by their names only.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._called: set[str] = set()
        self._next = 0
        self._ahead = set(steps.order)

    @property
    def is_behind(self) -> bool:
        """Whether the handler's own task has yet to come to a step that it came to before."""
        return bool(self._ahead)

    def come(self, name: str, *, main: bool = True) -> Finished | None:
        """Return the recorded end of the next step, if it had one.

        Raises:
            StepError: it came before in this run, or has a name that cannot be stored.
            StepsChanged: another one was recorded at its place.
        """
        _check_name(name)
        if name in self._called:
            raise StepError(
                f"two steps of one run are named {name!r}; "
                f'give each its own name, like f"{name}-{{i}}"'
            )
        if main:
            self._mind_order(name)
        self._called.add(name)
        self._ahead.discard(name)
        return self._steps.finished.get(name)

    def end(self) -> None:
        """Check the end of the handler.

        Raises:
            StepsChanged: it has left out a step that was recorded.
        """
        for name in self._steps.names:
            if name not in self._called:
                raise StepsChanged(name, None)

    def _mind_order(self, name: str) -> None:
        order = self._steps.order
        while self._next < len(order) and order[self._next] in self._called:
            self._next += 1
        if self._next == len(order) or name == order[self._next]:
            return
        if name in self._steps.finished and name not in order:
            return  # A step of another task, which has no order.
        raise StepsChanged(order[self._next], name)


def _check_name(name: str) -> None:
    try:
        check_name("step", name)
    except ValueError as error:
        raise StepError(str(error)) from None


def named(names: Sequence[str]) -> str:
    """Name steps in a sentence."""
    return ", ".join(names) if names else "none"
