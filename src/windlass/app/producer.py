"""Owns the way from a call to a job: options, drafts, and the typed `enqueue` of a handler."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from windlass.app.enqueueing.options import Options
from windlass.app.handle import Handle
from windlass.app.loop_thread import refuse_in_event_loop
from windlass.app.registration.job_classes import options_in
from windlass.app.spaces import check_unique
from windlass.core.jobs.job import IDEMPOTENCY_KEY, NewJob, UniqueKey
from windlass.core.jobs.unique import NO_IDENTITY, Identity, Unique
from windlass.core.payloads.codec import PayloadCodec
from windlass.core.policies.keys import Key, key_of
from windlass.core.values.durations import Duration, When, brief, duration, instant, when
from windlass.core.values.job_options import (
    checked_tags,
    checked_timeout,
)
from windlass.observability.logs import get_logger

if TYPE_CHECKING:
    from windlass.app.app import Windlass

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
C = TypeVar("C")
T = TypeVar("T")
log = get_logger("windlass.enqueue")
_CLOCKS_DIFFER = timedelta(minutes=1)
"""By how much a time may be past that was in the future by another host's clock."""
_MAX_SHOWN_CHARACTERS = 100


class Draft(Struct, Generic[R], frozen=True, kw_only=True, gc=False):
    """A job that is valid and not enqueued yet: `app.enqueue_many([...])` takes any mix of them.

    A draft has its job's id already; enqueueing it twice adds one job.
    """

    job: NewJob
    hint: Any = Any


def checked_draft(called: str, draft: Draft[R]) -> Draft[R]:
    """Return a draft.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(draft, Draft):
        raise TypeError(f"{called} must be a draft, got {_shown(draft)}; write {_as_draft(draft)}")
    return draft


def checked_drafts(drafts: Iterable[Draft[R]]) -> list[Draft[R]]:
    """Return drafts as a list.

    Raises:
        TypeError: something else is among them, or they are no iterable.
    """
    listed: list[Any] = list(iterable(drafts))
    for each in listed:
        if not isinstance(each, Draft):
            checked_draft("each of drafts", each)
    return listed


def iterable(drafts: T) -> T:
    """Return an iterable of drafts.

    Raises:
        TypeError: nothing can.
    """
    if isinstance(drafts, Draft):
        raise TypeError("drafts must be an iterable of drafts, got one; put it into a list")
    if not isinstance(drafts, Iterable | AsyncIterable):
        raise TypeError(
            f"drafts must be an iterable of drafts, got {_shown(drafts)}; "
            f"write a list, [{_as_draft(drafts)}]"
        )
    return drafts


def _due_of(kind: str, delay: Duration | None, at: datetime | None) -> When | None:
    if delay is not None and at is not None:
        raise ValueError("delay= and at= cannot be combined; leave one out")
    if isinstance(delay, datetime):
        raise TypeError(f"delay must be a duration like '5m', got {delay!r}; write at=")
    if isinstance(at, datetime):
        _warn_of_past(kind, at)
    if at is not None:
        return instant(at, "at")
    return None if delay is None else duration(delay, "delay")


def _shown(given: object) -> str:
    # Without the repr of the value: it may contain secrets.
    plain = isinstance(given, Producer | str | int | float | None)
    return repr(given)[:_MAX_SHOWN_CHARACTERS] if plain else f"a {type(given).__qualname__}"


def _as_draft(given: object) -> str:
    name = given.kind if isinstance(given, Producer) else "handler"
    return f"{name}.draft(...)"


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
        fields: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._fields = fields
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
        tags: Sequence[str] | None = None,
        tx: object = None,
    ) -> Producer[P, R]:
        """Return a producer of the same kind with other options; they never mix with arguments.

        Options given here go before those of the handler, and keys before those from the arguments.

        Args:
            queue: The queue in which the job waits.
            priority: -1000 to 1000; one step is worth a minute of waiting.
            key: What the limits and the fairness of the kind go by.
            delay: How long the job waits until it is due.
            at: When the job is due, an aware datetime; a time that is past means at once.
            expires: When, or after how long, the job is not started any more.
            unique: While a job holds this key, `enqueue` adds nothing and returns that job's
                handle; held as the kind or a `Unique` says, else until its job is settled.
            idempotency_key: Identifies the work when checking whether it was already done.
            max_retries: How often the job is retried.
            timeout: How long a run of the job may take.
            headers: Texts beside the payload, in the handler as `ctx.headers`.
            tags: Words by which the job is found.
            tx: A connection of your own in a transaction (psycopg, asyncpg, SQLAlchemy, Django) to
                the database that holds the jobs: the job is there when you commit, and never was
                when you roll back. PostgreSQL only.
        """
        plain = {"queue": queue, "priority": priority, "key": key, "max_retries": max_retries}
        chosen = {
            "due": _due_of(self.kind, delay, at),
            "expires": _expiry_of(self.kind, expires),
            "unique": None if unique is None else self._identity.unique_with(unique),
            "idempotency_key": idempotency_key,
            "timeout": None if timeout is None else checked_timeout(timeout),
            "headers": _checked_headers(headers),
            "tags": None if tags is None else checked_tags(tags),
        }
        return self._with(plain | chosen, self._tx if tx is None else tx)

    def _with(self, chosen: dict[str, Any], tx: object) -> Producer[P, R]:
        given = {name: value for name, value in chosen.items() if value is not None}
        return Producer(
            self._app,
            self.kind,
            codec=self._codec,
            payload=self._payload,
            hint=self._hint,
            options=replace(self._options, **given),
            key=self._key,
            identity=self._identity,
            tx=tx,
            fields=tuple(name for name in self._fields if name not in given),
        )

    def draft(self, *args: P.args, **kwargs: P.kwargs) -> Draft[R]:
        """Check the arguments, and return a job with them that is not enqueued yet.

        Raises:
            PayloadInvalid: an argument does not fit; the error names it.
            PayloadTooLarge: the arguments take more bytes than the limit allows.
        """
        value = self._payload(args, kwargs)
        options = self._options
        if self._fields and (own := options_in(self._fields, value)):
            options = self._with_fields(own)
        # First, so that a wrong argument is named as such, and not as a missing key.
        payload = self._codec.encode(value, limit=self._app.settings.max_payload)
        unique, headers = None, options.sent_headers
        if self._is_identified():
            unique, headers = self._identify(value, options)
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
            origin=self._app.ids.origin(),
        )
        return Draft(job=job, hint=self._hint)

    def _is_identified(self) -> bool:
        options = self._options
        return (
            self._identity is not NO_IDENTITY
            or options.unique is not None
            or options.idempotency_key is not None
        )

    def _with_fields(self, own: dict[str, Any]) -> Options:
        if "timeout" in own:
            own["timeout"] = checked_timeout(own["timeout"])
        return replace(self._options, **own)

    def _identify(self, value: Any, options: Options) -> tuple[UniqueKey | None, dict[str, str]]:
        identity = self._identity
        rule, key = options.unique, None
        if rule is None:
            rule, key = identity.unique, identity.unique_key_of(self.kind, value)
        elif isinstance(rule.key, str):
            key = rule.key
        unique = None
        if rule is not None and key is not None:
            unique = rule.held_as(key, kind=self.kind, queue=options.queue)
            if spaces := self._app.settings.spaces:
                check_unique(spaces, self._app.registry, self.kind, rule, options.queue)
        done_by = options.idempotency_key or identity.idempotency_key_of(self.kind, value)
        if done_by is None and identity.idempotent:
            done_by = key
        if done_by is None:
            return unique, options.sent_headers
        return unique, {**options.sent_headers, IDEMPOTENCY_KEY: done_by}

    def _key_of(self, value: Any) -> str:
        if self._options.key is not None:
            return self._options.key
        return "" if self._key is None else key_of(self.kind, self._key, value)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a job from blocking code. In a coroutine, `await aenqueue(...)` instead.

        Raises:
            PayloadError: the arguments cannot become a payload.
            EnqueueUncertain: the store did not answer within `enqueue_timeout`; `error.retry()`
                enqueues the same job again, and never twice.
            StoreError: the store did not take the job, and has not written it.
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
            EnqueueUncertain: the store did not answer within `enqueue_timeout`;
                `await error.aretry()` enqueues the same job again, and never twice.
            StoreError: the store did not take the job, and has not written it.
        """
        if self._tx is not None:
            return (await self._app.aenqueue_many([self.draft(*args, **kwargs)], tx=self._tx))[0]
        return await self._app.aenqueue_draft(self.draft(*args, **kwargs))


def _checked_headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of text to text, got {headers!r}")
    return None if headers is None else dict(headers)


def _warn_of_past(kind: str, at: datetime) -> None:
    if at.utcoffset() is not None and (late := datetime.now(UTC) - at) > _CLOCKS_DIFFER:
        log.warning(
            "enqueue.past", kind=kind, at=at, ago=brief(late), note="the job is due at once"
        )


def _expiry_of(kind: str, expires: Duration | datetime | None) -> When | None:
    if expires is None:
        return None
    until = when(expires, "expires")
    is_past = not until if isinstance(until, timedelta) else until <= datetime.now(UTC)
    if is_past:
        note = "the job is cancelled instead of run"
        log.warning("enqueue.expired", kind=kind, expires=expires, note=note)
    return until


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
            fields=producer._fields,
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
