"""Owns the words between a worker and its children, and how they travel: frames of msgpack."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from windlass.core.job import Attempt, ErrorInfo, Job, Progress, Saga
from windlass.core.settle import Transition
from windlass.core.states import State

BROKEN = 70
"""The exit code of a child that cannot be heard any more."""
_LENGTH = struct.Struct("<I")


class Recipe(Struct, frozen=True, kw_only=True, tag="recipe"):
    """How a child comes by the app: what to import, where to find it, and what to tell it."""

    home: str
    """Where the app is: `module:attribute`."""
    modules: tuple[str, ...]
    """What to import besides, for the handlers in it."""
    main: dict[str, str]
    """How to import the program itself, as multiprocessing does it; empty if nobody needs it."""
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    settings: dict[str, str | int | float]
    logging: tuple[str, str] | None
    """The level and the format of log lines, if any are written."""


class Start(Struct, frozen=True, kw_only=True, tag="start"):
    """Run this job."""

    job: Job
    elapsed: float
    """Seconds since it was claimed."""
    memory: int | None = None
    """Bytes that the child may have, where the worker cannot see what it uses."""


class Stop(Struct, frozen=True, kw_only=True, tag="stop"):
    """End the run of this claim; `late` says so if it is because its time is up."""

    token: int
    late: str | None


class Recorded(Struct, frozen=True, kw_only=True, tag="recorded"):
    """What a child has said of a step is in the store, unless there was a problem."""

    number: int
    fenced: bool = False
    problem: str = ""


class Fit(Struct, frozen=True, kw_only=True, tag="fit"):
    """The child has the app, which knows these kinds."""

    kinds: tuple[str, ...]


class Unfit(Struct, frozen=True, kw_only=True, tag="unfit"):
    """The child could not get the app."""

    why: str


class Reported(Struct, frozen=True, kw_only=True, tag="reported"):
    """The handler says how far it is."""

    progress: Progress


class Stepped(Struct, frozen=True, kw_only=True, tag="stepped"):
    """The handler has come so far with its steps, and waits until that is recorded."""

    number: int
    steps: tuple[str, ...]
    saga: Saga | None


class Heeded(Struct, frozen=True, kw_only=True, tag="heeded"):
    """The run has ended because it was told to."""


class Begun(Struct, frozen=True, kw_only=True, tag="begun"):
    """The job has arrived: if the child dies now, it is of that."""


class Over(Struct, frozen=True, kw_only=True, tag="over"):
    """The run has said itself what becomes of the job: it is completed, or parked."""

    parked: bool = False


class Settled(Struct, frozen=True, kw_only=True, tag="settled"):
    """The run has ended, and this becomes of the job: a transition without its fence."""

    state: State
    due_in: timedelta | None = None
    due_at: datetime | None = None
    failures: int = 0
    result: bytes | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    attempt: Attempt | None = None
    waiting_for: str | None = None
    steps: tuple[str, ...] = ()
    saga: Saga | None = None
    trips: bool = False
    hold_in: timedelta | None = None
    hold_at: datetime | None = None

    @classmethod
    def of(cls, move: Transition, *, trips: bool = False) -> Settled:
        """Make a word of a transition."""
        return cls(
            state=move.state,
            due_in=move.due if isinstance(move.due, timedelta) else None,
            due_at=move.due if isinstance(move.due, datetime) else None,
            failures=move.failures,
            result=move.result,
            error=move.error,
            reason=move.reason,
            attempt=move.attempt,
            waiting_for=move.waiting_for,
            steps=move.steps,
            saga=move.saga,
            trips=trips,
            hold_in=move.hold if isinstance(move.hold, timedelta) else None,
            hold_at=move.hold if isinstance(move.hold, datetime) else None,
        )

    def transition(self, job: Job) -> Transition:
        """Make a transition of it again, for the job that the child was given and no other."""
        if job.token is None:
            raise ValueError(f"job {job.id} is {job.state}, so there is nothing to settle")
        return Transition(
            id=job.id,
            token=job.token,
            state=self.state,
            due=self.due_in if self.due_at is None else self.due_at,
            failures=self.failures,
            result=self.result,
            error=self.error,
            reason=self.reason,
            attempt=self.attempt,
            waiting_for=self.waiting_for,
            steps=self.steps,
            saga=self.saga,
            trips=self.trips,
            hold=self.hold_in if self.hold_at is None else self.hold_at,
        )


Order = Recipe | Start | Stop | Recorded
Word = Fit | Unfit | Begun | Reported | Stepped | Heeded | Over | Settled
_encoder = msgspec.msgpack.Encoder()
_orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
_words: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def frame(message: Order | Word) -> bytes:
    """Write a message, with its length before it."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def order_of(body: bytes) -> Order:
    """Read what a worker says to its child."""
    return _orders.decode(body)


def word_of(body: bytes) -> Word:
    """Read what a child says to its worker."""
    return _words.decode(body)


class Frames:
    """Puts what arrives in pieces together again."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a piece, and return the messages that are whole by now."""
        self._rest += data
        while len(self._rest) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest)
            end = _LENGTH.size + length
            if len(self._rest) < end:
                return
            yield bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
