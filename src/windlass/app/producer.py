"""Owns the way of a call into a job: options, drafts, and the typed `enqueue` of a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from msgspec import Struct

from windlass.app.handle import Handle
from windlass.app.portal import refuse_in_event_loop
from windlass.core.durations import Duration, When, duration, when
from windlass.core.job import DEFAULT_QUEUE, IDEMPOTENCY_KEY, NewJob, UniqueKey
from windlass.core.keys import Key, key_of
from windlass.core.names import check_name
from windlass.core.payload import PayloadCodec, encode_json
from windlass.core.unique import NO_IDENTITY, Identity, Unique

if TYPE_CHECKING:
    from windlass.app.app import Windlass

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
C = TypeVar("C")
_PRIORITIES = range(-1000, 1001)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a job is enqueued, apart from its arguments."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    key: str | None = None
    due: When | None = None
    expires: When | None = None
    unique: Unique | None = None
    """By its own key, not by one that is found in the arguments."""
    idempotency_key: str | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        if self.priority not in _PRIORITIES:
            raise ValueError(f"a priority is between -1000 and 1000, and {self.priority!r} is not")
        if self.max_retries is not None and self.max_retries < 0:
            raise ValueError(f"max_retries cannot be negative: {self.max_retries}")
        if self.timeout is not None and not self.timeout:
            raise ValueError("a timeout of nothing lets no job run")
        if self.unique is not None:
            check_name("unique key", self.unique.key)
        if self.idempotency_key is not None:
            check_name("idempotency key", self.idempotency_key)
        if self.key:
            check_name("key", self.key)
        if not all(isinstance(text, str) for pair in self.headers.items() for text in pair):
            raise ValueError(f"headers are text, and {self.headers!r} has something else")
        encode_json("headers", self.headers)
        if IDEMPOTENCY_KEY in self.headers:
            check_name("idempotency key", self.headers[IDEMPOTENCY_KEY])


class Draft(Struct, Generic[R], frozen=True, kw_only=True, gc=False):
    """A job that is valid and not enqueued yet: `app.enqueue_many([...])` takes any mix of them.

    A draft has its job's id already; to enqueue it twice is to enqueue it once.
    """

    job: NewJob
    hint: Any = Any


class Producer(Generic[P, R]):
    """Makes jobs of one kind. `enqueue` is typed by the handler's own signature."""

    def __init__(
        self,
        app: Windlass,
        kind: str,
        *,
        codec: PayloadCodec,
        payload: Callable[[tuple[Any, ...], Mapping[str, Any]], Any],
        hint: Any = Any,
        options: Options | None = None,
        key: Key | None = None,
        identity: Identity = NO_IDENTITY,
        tx: object = None,
    ) -> None:
        self._app = app
        self._identity = identity
        self._tx = tx
        self._key = key
        self._codec = codec
        self._payload = payload
        self._hint = hint
        self._options = options or Options()
        self.kind = kind

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        expires: Duration | datetime | None = None,
        unique: str | Unique | None = None,
        idempotency_key: str | None = None,
        max_retries: int | None = None,
        timeout: Duration | None = None,
        headers: Mapping[str, str] | None = None,
        tx: object = None,
    ) -> Producer[P, R]:
        """Return a producer of the same kind with other options; they never mix with arguments.

        `delay` and `at` say when the job is due, `expires` after when it is not run any more. While
        a job holds the same `unique` key, `enqueue` adds nothing and returns that job's handle; a
        text is held as the kind says, else until its job is settled, and a `Unique` says more.
        `idempotency_key` is what this job is known by as done. `key` is what the kind's limits and
        fairness go by. Such keys stand instead of what the arguments say. `timeout` and
        `max_retries` replace the handler's own for this job.

        `tx` is a connection of your own in a transaction (psycopg, asyncpg, SQLAlchemy, Django) to
        the database that holds the jobs: the job is there when you commit, and never was when you
        roll back. PostgreSQL only.
        """
        if delay is not None and at is not None:
            raise ValueError("a job has either a delay or a time (at), not both")
        due = delay if at is None else at
        chosen = {
            "queue": queue,
            "priority": priority,
            "key": key,
            "due": None if due is None else when(due),
            "expires": None if expires is None else when(expires),
            "unique": None if unique is None else self._identity.unique_with(unique),
            "idempotency_key": idempotency_key,
            "max_retries": max_retries,
            "timeout": None if timeout is None else duration(timeout),
            "headers": None if headers is None else dict(headers),
        }
        given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
        return Producer(
            self._app,
            self.kind,
            codec=self._codec,
            payload=self._payload,
            hint=self._hint,
            options=replace(self._options, **given),
            key=self._key,
            identity=self._identity,
            tx=self._tx if tx is None else tx,
        )

    def draft(self, *args: P.args, **kwargs: P.kwargs) -> Draft[R]:
        """Check the arguments, and make a job of them that is not enqueued yet.

        Raises:
            PayloadInvalid: an argument does not fit; the error names it.
            PayloadTooLarge: the arguments take more bytes than the limit allows.
        """
        options = self._options
        value = self._payload(args, kwargs)
        # First: a wrong argument is named as such, and not as a key that cannot be told.
        payload = self._codec.encode(value, limit=self._app.settings.max_payload)
        unique, headers = None, options.headers
        if self._is_identified():
            unique, headers = self._identify(value)
        job = NewJob(
            id=self._app.ids.next(),
            kind=self.kind,
            payload=payload,
            queue=options.queue,
            priority=options.priority,
            key=self._key_of(value),
            due=options.due,
            expires=options.expires,
            max_retries=options.max_retries,
            timeout=options.timeout,
            unique=unique,
            headers=headers,
        )
        return Draft(job=job, hint=self._hint)

    def _is_identified(self) -> bool:
        options = self._options
        return (
            self._identity is not NO_IDENTITY
            or options.unique is not None
            or options.idempotency_key is not None
        )

    def _identify(self, value: Any) -> tuple[UniqueKey | None, dict[str, str]]:
        """Return the key that a job is to hold, and its headers with its idempotency key."""
        options, identity = self._options, self._identity
        rule, key = options.unique, None
        if rule is None:
            rule, key = identity.unique, identity.unique_key_of(self.kind, value)
        elif isinstance(rule.key, str):
            key = rule.key
        unique = None
        if rule is not None and key is not None:
            unique = rule.held_as(key, kind=self.kind, queue=options.queue)
        done_by = options.idempotency_key or identity.idempotency_key_of(self.kind, value)
        if done_by is None and identity.idempotent:
            done_by = key
        if done_by is None:
            return unique, options.headers
        return unique, {**options.headers, IDEMPOTENCY_KEY: done_by}

    def _key_of(self, value: Any) -> str:
        if self._options.key is not None:
            return self._options.key
        return "" if self._key is None else key_of(self.kind, self._key, value)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a job from blocking code. In a coroutine, `await aenqueue(...)` instead.

        Raises:
            PayloadError: the arguments cannot become a payload.
            StoreError: the store did not take the job within `enqueue_timeout`.
            CalledFromEventLoop: this would block an event loop.
        """
        if self._tx is not None:
            return self._app.enqueue_many([self.draft(*args, **kwargs)], tx=self._tx)[0]
        refuse_in_event_loop("{}.enqueue(...)", "await {}.aenqueue(...)", self.kind)
        return self._app.enqueue_draft(self.draft(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a job from a coroutine.

        Raises:
            PayloadError: the arguments cannot become a payload.
            StoreError: the store did not take the job.
        """
        return (await self._app.aenqueue_many([self.draft(*args, **kwargs)], tx=self._tx))[0]


class Handler(Producer[P, R], Generic[P, R, Q, C]):
    """A registered function or class. It stays callable as it was, and can be enqueued."""

    def __init__(self, function: Callable[Q, C], producer: Producer[P, R]) -> None:
        super().__init__(
            producer._app,
            producer.kind,
            codec=producer._codec,
            payload=producer._payload,
            hint=producer._hint,
            options=producer._options,
            key=producer._key,
            identity=producer._identity,
        )
        self._function = function
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(self, name, getattr(function, name, None))
        self.__wrapped__ = function

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        """Call the function itself, here and now, without any queue."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """Show the kind."""
        return f"Handler({self.kind!r})"
