"""Owns the messages between a worker and its children; `process.channel` carries them."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from windlass.core.jobs.job import Attempt, ErrorInfo, Job, Progress, Saga
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import Appended, ChunkGroup

CHANNEL_LOST_EXIT_CODE = 70
"""The exit code of a child that cannot use its channel any more."""


class Recipe(Struct, frozen=True, kw_only=True, tag="recipe"):
    """How a child loads the app: what to import, from where, and with which settings."""

    home: str
    """The location of the app, as `module:attribute`."""
    modules: tuple[str, ...]
    """Further modules to import, for the handlers in them."""
    main: dict[str, str]
    """How to import the main program, as multiprocessing does it; empty if that is not needed."""
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    settings: dict[str, str | int | float]
    logging: tuple[str, str] | None
    """The level and the format of log lines, if any are written."""


class Start(Struct, frozen=True, kw_only=True, tag="start"):
    """Run this job."""

    job: Job
    elapsed: float
    """Seconds since the job was claimed."""
    memory: int | None = None
    """Memory limit in bytes, where the worker cannot measure the child's use."""


class Stop(Struct, frozen=True, kw_only=True, tag="stop"):
    """End the run of this claim; `late` means that its timeout is over."""

    token: int
    late: str | None


class Recorded(Struct, frozen=True, kw_only=True, tag="recorded"):
    """A step, or chunks, that a child reported are in the store, unless there was a problem."""

    number: int
    appended: Appended | None = None
    """How much the stream has, after chunks."""
    fenced: bool = False
    problem: str = ""


class Fit(Struct, frozen=True, kw_only=True, tag="fit"):
    """The child has loaded the app, which knows these kinds."""

    kinds: tuple[str, ...]


class Unfit(Struct, frozen=True, kw_only=True, tag="unfit"):
    """The child could not load the app."""

    why: str


class Reported(Struct, frozen=True, kw_only=True, tag="reported"):
    """Progress that the handler reports."""

    progress: Progress


class Stepped(Struct, frozen=True, kw_only=True, tag="stepped"):
    """Steps that the handler has completed; it waits until they are recorded."""

    number: int
    steps: tuple[str, ...]
    saga: Saga | None


class Streamed(Struct, frozen=True, kw_only=True, tag="streamed"):
    """Chunks that the handler has streamed."""

    number: int
    group: ChunkGroup


class StopNoticed(Struct, frozen=True, kw_only=True, tag="stopped"):
    """The run has ended because it was stopped."""


class Begun(Struct, frozen=True, kw_only=True, tag="begun"):
    """The job has arrived: if the child dies from now on, the job is a suspect."""


class Over(Struct, frozen=True, kw_only=True, tag="over"):
    """The run has stored its own transition: the job is completed or parked."""

    parked: bool = False


class Settled(Struct, frozen=True, kw_only=True, tag="settled"):
    """The run has ended with this transition, without its fence."""

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
        """Make a message from a transition."""
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
        """Return the transition for the job that the child was given."""
        if job.token is None:
            raise ValueError(f"job {job.id} is {job.state}, so it cannot be settled")
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


class Ending(Struct, frozen=True, kw_only=True, tag="ending"):
    """The final outcome of the job, whatever the callbacks that receive it now do."""

    end: Settled | Over


WorkerMessage = Recipe | Start | Stop | Recorded
ChildMessage = (
    Fit | Unfit | Begun | Reported | Stepped | Streamed | StopNoticed | Over | Settled | Ending
)
