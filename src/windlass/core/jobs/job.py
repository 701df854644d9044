"""Owns the facts about jobs, lanes and workers, as they travel to the store and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from windlass.core.failures.error_classes import ErrorClass
from windlass.core.jobs.ids import Origin, flow_of
from windlass.core.jobs.states import State
from windlass.core.values.durations import When
from windlass.core.values.names import NAME_LIMIT

DEFAULT_QUEUE = "default"
IDEMPOTENCY_KEY = "idempotency-key"
"""The header with the key under which a completed job of a kind is recorded as done."""
EVENT = "event:"
"""The prefix of an event's name where a job waits for it, and in news."""
SCHEDULE, TICK = "windlass-schedule", "windlass-tick"
"""The headers of a schedule's jobs: its name, and the tick, ISO 8601 in UTC."""
TAGS = "windlass-tags"
"""The header with the tags of a job, with commas between them."""
OVERLAP = "windlass-overlap"
"""The header of a schedule's jobs for whose end the next tick waits."""
FLOW = "flow:"
"""The prefix of a flow's id where a job waits for it, and in news."""
AGING = timedelta(minutes=1)
"""How much waiting a step of priority is worth."""
HISTORY_KEPT = 100
"""How many attempts a job remembers, the latest: a job may be snoozed for ever."""


class Lane(NamedTuple):
    """Jobs that compete only by order: claimed oldest first, and asked for together."""

    queue: str
    kind: str
    priority: int = 0
    key: str = ""


OnDuplicate = Literal["keep", "replace", "push", "supersede"]
"""The effect of a duplicate on the holder of its unique key that has not started yet.

The holder is kept as it is; or gets the new payload (replace), the later due time (push), or both.
"""


class UniqueKey(Struct, frozen=True, kw_only=True):
    """A key that at most one job may hold, for how long, and the effect of a duplicate."""

    key: str
    until: Literal["claimed", "settled"] | timedelta = "settled"
    on_duplicate: OnDuplicate = "keep"


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job as its producer made it. The store adds the times, by its own clock."""

    id: UUID
    kind: str
    payload: bytes
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    key: str = ""
    due: When | None = None
    expires: When | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    unique: UniqueKey | None = None
    headers: dict[str, str] = {}
    waiting_for: str | None = None
    """Parked from the beginning under this key, whatever its due time."""
    origin: Origin | None = None
    """Proof for a store that this job was never sent; None: it may have been."""


class Enqueued(Struct, frozen=True, kw_only=True, gc=False):
    """The result of an enqueue: the new job's id, or that of the holder of its unique key."""

    id: UUID
    is_duplicate: bool = False


class ErrorInfo(Struct, frozen=True, kw_only=True):
    """An exception of a handler, as text that is safe to store and of bounded size."""

    type: str
    message: str
    traceback: str = ""
    error_class: ErrorClass | None = None
    """The error class that decided about the job; None if the handler did not raise this."""
    fingerprint: str = ""
    """A hash that is the same for errors that are, in all likelihood, the same fault."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Attempt(Struct, frozen=True, kw_only=True):
    """One run of a job that did not complete it."""

    number: int
    worker: str | None
    started_at: datetime | None
    duration: timedelta
    outcome: str
    error: ErrorInfo | None = None
    retry_at: datetime | None = None
    """When it runs again, if it keeps its place until then: its due time is that of its place."""


class Progress(Struct, frozen=True, kw_only=True):
    """The progress that a running job reports, from 0 to 1."""

    fraction: float
    message: str = ""


class Saga(StrEnum):
    """The state of a job's undos."""

    READY = "ready"
    """There is something to undo, should the job fail for good."""
    UNDOING = "undoing"
    """The job failed for good, and is being undone."""
    OVER = "over"
    """Everything is undone: a redrive begins with the first step."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Entries that a running job adds to its step log, under its fence."""

    id: UUID
    token: int
    steps: tuple[str, ...]
    saga: Saga | None = None
    """The state of the undos after this; None: unchanged."""


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """A job as the store holds it."""

    id: UUID
    kind: str
    queue: str
    priority: int
    key: str
    state: State
    payload: bytes
    due_at: datetime
    created_at: datetime
    expires_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    max_retries: int | None = None
    timeout: timedelta | None = None
    unique_key: str | None = None
    headers: dict[str, str] = {}
    waiting_for: str | None = None
    worker: str | None = None
    token: int | None = None
    cancel_requested: bool = False
    progress: Progress | None = None
    result: bytes | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    history: tuple[Attempt, ...] = ()
    steps: tuple[str, ...] = ()
    """The log of its steps, entry by entry, as JSON; see `windlass.core.workflows.step_log`."""
    saga: Saga | None = None

    @property
    def flow(self) -> UUID | None:
        """The flow that it belongs to, if any."""
        return flow_of(self.id)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its producer gave it."""
        tags = self.headers.get(TAGS)
        return tuple(tags.split(",")) if tags else ()

    @property
    def lane(self) -> Lane:
        """The lane in which this job waits."""
        return Lane(self.queue, self.kind, self.priority, self.key)

    @property
    def idempotency_key(self) -> str | None:
        """The key that its producer gave it, if any; an endless one could not be looked up."""
        key = self.headers.get(IDEMPOTENCY_KEY, "")
        return key if 0 < len(key) <= NAME_LIMIT else None
