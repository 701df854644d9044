"""Owns the facts about jobs, lanes and workers, as they travel to the store and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID, SafeUUID

from msgspec import Struct

from windlass.core.durations import When
from windlass.core.error_classes import ErrorClass
from windlass.core.names import NAME_LIMIT
from windlass.core.states import State

DEFAULT_QUEUE = "default"
IDEMPOTENCY_KEY = "idempotency-key"
"""The header with the key by which jobs of a kind are known as done, once one is completed."""
EVENT = "event:"
"""What the name of an event is put behind, where a job waits for it, or news tell of it."""
SCHEDULE, TICK = "windlass-schedule", "windlass-tick"
"""The headers of a schedule's jobs: its name, and the time that the job is for, ISO 8601 in UTC."""
OVERLAP = "windlass-overlap"
"""The header of a schedule's jobs for whose end its next tick waits."""
FLOW = "flow:"
"""What the id of a flow is put behind, where a job waits for it, or news tell of it."""
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
"""What a job does to the holder of its unique key, as long as that has not been started.

It is kept as it is; or gets the new one's payload (replace), its later due time (push), or both.
"""


class UniqueKey(Struct, frozen=True, kw_only=True):
    """A key that at most one job may hold, how long it does, and what becomes of a duplicate."""

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
    """Parked from the beginning: it waits for this, whatever its due time."""


class Enqueued(Struct, frozen=True, kw_only=True, gc=False):
    """What became of an enqueue: the new job's id, or that of the holder of its unique key."""

    id: UUID
    existing: bool = False


class ErrorInfo(Struct, frozen=True, kw_only=True):
    """What a handler raised, as text that is safe to store and of bounded size."""

    type: str
    message: str
    traceback: str = ""
    error_class: ErrorClass | None = None
    """By which it was decided what becomes of the job; None if the handler did not raise this."""
    fingerprint: str = ""
    """What it has in common with other errors that are, in all likelihood, the same fault."""

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


class Progress(Struct, frozen=True, kw_only=True):
    """How far a running job says it is, from 0 to 1."""

    fraction: float
    message: str = ""


class Saga(StrEnum):
    """How it stands with what a job's steps did, and may have to undo."""

    READY = "ready"
    """There is something to undo, should the job fail for good."""
    UNDOING = "undoing"
    """It failed for good, and is being undone."""
    OVER = "over"
    """All is undone: a second life begins with the first step."""


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a running job adds to the log of its steps, under its fence."""

    id: UUID
    token: int
    steps: tuple[str, ...]
    saga: Saga | None = None
    """How it stands with its undos from here on; None: as before."""


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
    """The log of its steps, entry by entry, as JSON; see `windlass.core.steps`."""
    saga: Saga | None = None

    @property
    def flow(self) -> UUID | None:
        """The flow that it belongs to, if it does."""
        return flow_of(self.id)

    @property
    def lane(self) -> Lane:
        """The lane in which this job waits."""
        return Lane(self.queue, self.kind, self.priority, self.key)

    @property
    def idempotency_key(self) -> str | None:
        """The key that its producer gave it, if any; an endless one could not be looked up."""
        key = self.headers.get(IDEMPOTENCY_KEY, "")
        return key if 0 < len(key) <= NAME_LIMIT else None


class Floor(NamedTuple):
    """A place in a lane, by due time and arrival, below which nothing is believed to wait."""

    due_at: datetime
    seq: int


class Head(Struct, frozen=True, kw_only=True, gc=False):
    """The oldest pending job of a lane, or what is believed to be; then with a floor."""

    lane: Lane
    position: datetime
    floor: Floor | None = None


class Sweep(Struct, frozen=True, kw_only=True):
    """What a store has to offer: the head of every lane that has pending jobs.

    `next_due` is when the earliest scheduled job is due; `mark` names the moment of this look, and
    `Store.wait(mark)` returns once anything may have changed since.
    """

    heads: tuple[Head, ...]
    next_due: datetime | None
    now: datetime
    mark: int


class Ask(Struct, frozen=True, kw_only=True):
    """A request for at most `count` jobs of a lane, and for no more than its budgets still hold.

    A store may begin at the `floor`, so as not to walk past what it has deleted; jobs below it
    are then left to whoever looks afresh.
    """

    lane: Lane
    count: int
    draws: tuple[str, ...] = ()
    floor: Floor | None = None
    ordered: bool = False
    """Whether its jobs must not overtake each other: it is asked for the oldest one, or none."""


class Turn(NamedTuple):
    """How many jobs a key is given by its turns, and when in virtual time the last one began."""

    lane: Lane
    jobs: int
    began: float


class Claim(Struct, frozen=True, kw_only=True):
    """Asks in the order in which they are met, and the budgets that they share."""

    asks: tuple[Ask, ...]
    budgets: dict[str, int] = {}
    reserves: dict[str, int] = {}
    """How much of each allowance it may use up; the store knows nothing of them."""
    turns: tuple[Turn, ...] = ()
    """What keys that take turns are given by it; the store knows nothing of them."""
    cut: bool = False
    """Whether there are lanes that nobody has looked at yet; the store knows nothing of that."""
    others: bool = False
    """Whether some keys of a group have their turn later; the store knows nothing of that."""


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """What a worker tells the store about itself when it registers."""

    id: str
    name: str
    host: str
    pid: int
    release: str
    lease: timedelta
    slots: int
    least_slots: int | None = None
    """The fewest slots to which it may shrink; None: it always has as many."""
    queues: tuple[str, ...] = ()
    """Those that it serves; none named: all."""
    excluded: tuple[str, ...] = ()
    """Those that it does not serve, whatever else it does."""
    queue_slots: dict[str, int] = {}
    """How many of its slots a queue may have, where that is fewer."""
    kinds: tuple[str, ...] = ()
    pools: dict[str, str] = {}
    """Of kinds that do not run in its event loop, whether they run in `threads` or `children`."""
    threads: int | None = None
    children: int | None = None
    """How many it has, to run jobs in; None: its release does not tell."""

    def serves(self, lane: Lane) -> bool:
        """Say whether it would run the jobs of a lane."""
        in_queue = not self.queues or lane.queue in self.queues
        return lane.kind in self.kinds and in_queue and lane.queue not in self.excluded


class Pulse(Struct, frozen=True, kw_only=True):
    """What a worker tells the store with every heartbeat."""

    state: Literal["running", "draining"] = "running"
    processed: int = 0
    running: int = 0
    slots: int | None = None
    """How many jobs it runs at once at present; None: it has not told yet."""
    busy: float = 0.0
    """The share in use of the slots that it can have, or of its threads, whichever is scarcer."""
    in_threads: int = 0
    in_children: int = 0
    """How many of the jobs that it runs are in threads, and in child processes."""
    waiting: bool = False
    """Whether there is, as far as it knows, work that it could run and has no room for."""
    cpu: float = 0.0
    """CPUs in use by its process, on the average since its last heartbeat."""
    fenced: int = 0
    """Writes that came too late, since the lease was gone by then."""
    loop_lag: timedelta = timedelta(0)
    listening: bool = True
    """Whether the store's news arrive; if not, new jobs are found by polling."""
    metrics: str = ""
    """Where its metrics are served, host and port; empty: nowhere."""
    clock_ahead: timedelta = timedelta(0)
    """By how much, at least, its host's clock is ahead of the store's; below 0: behind."""
    memory: int | None = None
    """Bytes that its process holds; None: it has not told, or cannot know."""
    pool: Connections | None = None
    """The connections of its store's pool; None: there is none, or it has not told."""


class WorkerRecord(Struct, frozen=True, kw_only=True):
    """A worker as the store holds it; alive while its lease has neither run out nor been ended.

    One whose lease has run out may renew it, and go on; one whose lease was `ended` never does.
    """

    info: WorkerInfo
    pulse: Pulse
    started_at: datetime
    last_seen: datetime
    lease_until: datetime
    alive: bool
    ended: bool = False


class QueueCount(Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in a state, and the due time of the oldest that still waits."""

    queue: str
    state: State
    count: int
    oldest: datetime | None = None


class Standing(Struct, frozen=True, kw_only=True):
    """How many jobs of its queue are before a job, and how many ended there in the last `span`."""

    ahead: int = 0
    ended: int = 0
    span: timedelta = timedelta(minutes=1)


class Depth(Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in a state; `capped`: there are more, which were not counted."""

    queue: str
    state: State
    count: int
    capped: bool = False


class Depths(Struct, frozen=True, kw_only=True):
    """How many jobs there are that are not finished, as far as they were counted."""

    counts: tuple[Depth, ...]
    cut: tuple[State, ...] = ()
    """The states of which not all were counted: a queue may have some that is not told with any."""
    snapshot_age: float | None = None
    """For how many seconds somebody has held a snapshot of the database; None: there are none."""


class Connections(Struct, frozen=True, kw_only=True):
    """The connections of a store's pool: open ones, those lent out, and how many there may be."""

    open: int
    in_use: int
    limit: int


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs to look at; an empty field asks for all."""

    states: tuple[State, ...] = ()
    kind: str | None = None
    queue: str | None = None
    worker: str | None = None
    fingerprint: str | None = None
    """That of the job's last error."""


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Dead jobs of one kind that died of the same error, as far as one can tell."""

    fingerprint: str
    kind: str
    count: int
    first_seen: datetime
    last_seen: datetime
    newest: UUID
    """The job that died of it last, or one of them."""
    error: ErrorInfo | None
    """What that one died of; None if it is dead without an error, for its `reason`."""
    reason: str | None


class Page(Struct, frozen=True, kw_only=True):
    """A bounded piece of a listing, newest first; `after` continues it."""

    jobs: tuple[Job, ...]
    after: UUID | None


class Finding(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be, and what to do about it."""

    problem: str
    remedy: str


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept; None keeps them until a person decides."""

    finished: timedelta | None = timedelta(days=7)
    dead: timedelta | None = None


Json = dict[str, Any]
"""The value of a record: a small JSON object."""


class News(Struct, frozen=True, kw_only=True):
    """Something that happened, kept until somebody hears of it: a job's end, or a user's event.

    `topic` is the name of the record under whose lock it is heard.
    """

    topic: str
    id: UUID
    """Of the job that ended, or of the event: within a topic, each is kept once."""
    body: bytes = b"{}"
    at: datetime | None = None
    """When the store took it."""


class Ringing(Struct, frozen=True, kw_only=True):
    """The records whose alarm has gone off, earliest first, and when the next one will."""

    records: dict[str, Json]
    next: datetime | None
    now: datetime


def job_id(milliseconds: int, random_bits: int) -> UUID:
    """Make a UUIDv7 from a Unix time and 74 random bits: unique anywhere, and sorted by age."""
    random = random_bits >> 62 << 64 | random_bits & 0x3FFF_FFFF_FFFF_FFFF
    return uuid_of(milliseconds << 80 | _VERSION_7 | random)


def uuid_of(value: int) -> UUID:
    """Make a UUID of a number that is one, without the checks that take three times as long."""
    made = object.__new__(UUID)
    _set_int(made, value)
    _set_is_safe(made, _UNKNOWN)
    return made


def flow_id(milliseconds: int, random_bits: int) -> UUID:
    """Make the id of a flow: a UUIDv8 from a Unix time and 54 random bits, the last 20 bits 0.

    Those tell its jobs apart, so that a job's id alone says which flow it belongs to.
    """
    random = random_bits >> 42 << 64 | random_bits << 20 & 0x3FFF_FFFF_FFFF_FFFF
    return uuid_of(milliseconds << 80 | _VERSION_8 | random)


def member_id(flow: UUID, number: int) -> UUID:
    """Return the id of a job of a flow; number 0 is the flow's own."""
    if not 0 <= number < FLOW_LIMIT:
        raise ValueError(f"a flow has fewer than {FLOW_LIMIT:,} jobs; {number:,} is too many")
    return uuid_of(flow.int | number)


def first_id(moment: datetime) -> UUID:
    """Return the least id that a job can have which was made at a moment, by its producer."""
    return uuid_of(int(moment.timestamp() * 1_000) << 80)


def flow_of(job: UUID) -> UUID | None:
    """Return the id of the flow that a job belongs to, by its own id."""
    value = job.int
    if value >> 76 & 0xF != 8:
        return None
    return uuid_of(value & ~(FLOW_LIMIT - 1))


def number_of(job: UUID) -> int:
    """Return the number of a job within its flow."""
    return job.int & FLOW_LIMIT - 1


FLOW_LIMIT = 1 << 20
"""How many jobs a flow can have, its own among them."""
_VERSION_7 = 0x7000_8000_0000_0000_0000
_VERSION_8 = 0x8000_8000_0000_0000_0000
_UNKNOWN = SafeUUID.unknown
_set_int = vars(UUID)["int"].__set__
_set_is_safe = vars(UUID)["is_safe"].__set__
