"""Owns the registered handlers, with everything needed to enqueue, claim and run each kind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from windlass.core.claims.room import Pool
from windlass.core.errors import ConfigError, UnknownKind
from windlass.core.failures.error_classes import (
    Classes,
    ErrorClass,
    Verdict,
    checked_classes,
    reached,
)
from windlass.core.jobs.job import Job
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.unique import NO_IDENTITY, Identity
from windlass.core.payloads.codec import encode_json
from windlass.core.payloads.masked_job import value_of
from windlass.core.payloads.protobuf.decoded_job import with_decoded_messages
from windlass.core.policies.breaker import Breaker, Rule, own_rule
from windlass.core.policies.fairness import Weights
from windlass.core.policies.keys import Key
from windlass.core.policies.limit import Limit, queue_limit
from windlass.core.values.names import RESERVED
from windlass.handlers.context import Context
from windlass.handlers.target import Target

_SYSTEM = ErrorClass.SYSTEM
CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, CallNext], Awaitable[Any]]
CallHook = Callable[[], object]


class Batch(Struct, frozen=True, kw_only=True):
    """How many jobs one call takes, and how long the first of them waits for the others."""

    size: int
    timeout: timedelta


class Registration(Struct, frozen=True, kw_only=True):
    """A kind with its handler, and the defaults of its jobs."""

    kind: str
    aliases: tuple[str, ...]
    target: Target
    queue: str
    priority: int
    tags: tuple[str, ...]
    retry: Retry
    errors: Classes
    timeout: timedelta | Literal["default"] | None
    middleware: tuple[Middleware, ...]
    module: str = ""
    """The module that defines it, which a child process imports."""
    isolate: bool | None = None
    """Whether it runs in a child process; None: the app's setting decides."""
    memory: int | None = None
    """Bytes of memory that a run in a child process may use."""
    grace: timedelta | None = None
    """Time that a stopped run has to clean up."""
    batch: Batch | None = None
    """How its jobs are batched; None: each has a call of its own."""
    key: Key | None = None
    """The key by which it is limited and takes turns."""
    limit: Limit | None = None
    """The limit of its own options."""
    shared_limit: str | None = None
    """The limit that it shares with other kinds."""
    units: int = 1
    """How many units of that limit a job uses."""
    breaker: Breaker | str | None = None
    """The breaker that holds back its jobs while a dependency is down, or its name."""
    weights: Weights | None = None
    """The weights of its keys, which take turns; None: keys do not take turns."""
    slo: timedelta | None = None
    """How long a job may wait for its start."""
    identity: Identity = NO_IDENTITY
    """How the unique keys and idempotency keys of its jobs are made."""

    def timeout_or(self, default: timedelta) -> timedelta | None:
        """Return the timeout of a run: as registered, or the default."""
        return default if self.timeout == "default" else self.timeout

    def grace_or(self, default: timedelta) -> timedelta:
        """Return the time that a stopped run has to clean up: as registered, or the default."""
        return default if self.grace is None else self.grace

    def pool(self, *, isolate: bool) -> Pool:
        """Return where a run takes place; `isolate` is the app's setting for `def` handlers."""
        if self.batch is not None:
            return Pool.LOOP  # Batched jobs wait for each other there.
        by_default = isolate and self.target.pool is Pool.THREADS
        isolated = by_default if self.isolate is None else self.isolate
        return Pool.ISOLATED if isolated else self.target.pool


class Registry:
    """The handlers of an app by kind. Handlers are found only here, never by a name in a row."""

    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}
        self._errors: dict[type[BaseException], Verdict] = {}
        self._limits: dict[str, Limit] = {}
        self._breakers: dict[str, Rule] = {}
        self.on_call_start: list[CallHook] = []
        """Hooks that are called in a handler's own thread before each call."""
        self.on_call_end: list[CallHook] = []
        """Hooks that are called there after each call, whatever its outcome."""

    @property
    def has_call_hooks(self) -> bool:
        """Whether hooks are registered for the threads of handlers."""
        return bool(self.on_call_start or self.on_call_end)

    @property
    def errors(self) -> Classes:
        """The error classes that apply to all kinds."""
        return self._errors

    def classify(self, classes: Classes) -> None:
        """Add error classes that apply to all kinds.

        Raises: ConfigError: this is no table of classes, or contradicts an earlier one.
        """
        for error, verdict in checked_classes(classes).items():
            if self._errors.setdefault(error, verdict) != verdict:
                raise ConfigError(
                    f"{error.__qualname__} is classified twice, and differently; classify it once "
                    "for all kinds, or per kind with @app.job(errors=...)"
                )

    @property
    def limits(self) -> Mapping[str, Limit]:
        """All limits by name: those of the app, and those of the kinds."""
        kinds = (each.limit for each in self._registrations.values())
        return self._limits | {limit.name: limit for limit in kinds if limit is not None}

    @property
    def is_limited(self) -> bool:
        """Whether any limit is defined."""
        return bool(self.limits) or any(each.shared_limit for each in self._registrations.values())

    @property
    def ordered(self) -> frozenset[str]:
        """The kinds, and their aliases, whose jobs must not be overtaken."""
        found = ((kind, each.limit) for kind, each in self._registrations.items())
        return frozenset(kind for kind, limit in found if limit is not None and limit.ordered)

    def limited_by(self, kind: str, queue: str) -> Iterator[tuple[str, int]]:
        """Return the limits that may apply to jobs of a kind, and how many units of each a job
        uses.

        All workers ask for them in this order.
        """
        if kind not in self:
            return
        registration = self[kind]
        yield queue_limit(queue), 1
        if registration.shared_limit is not None:
            yield registration.shared_limit, registration.units
        if registration.limit is not None:
            yield registration.limit.name, 1

    def limit(self, limit: Limit) -> None:
        """Add a limit that kinds share.

        Raises: ConfigError: a limit with this name exists.
        """
        if limit.name in self._limits:
            raise ConfigError(f"limit {limit.name!r} is defined twice; define it once")
        self._limits[limit.name] = limit

    def check_limits(self) -> None:
        """Check the limits that kinds share.

        Raises: ConfigError: a kind uses one that is not defined, or more units than it has.
        """
        for kind, registration in self._registrations.items():
            if registration.shared_limit is None:
                continue
            limit = self.limits.get(registration.shared_limit)
            if limit is None:
                raise ConfigError(
                    f"kind {kind!r} uses the limit {registration.shared_limit!r}, which is not "
                    f"defined; is the module with app.limit({registration.shared_limit!r}, "
                    "concurrency=...) imported?"
                )
            for measure, tokens in limit.tokens().items():
                if tokens.capacity < registration.units:
                    raise ConfigError(
                        f"kind {kind!r} uses {registration.units} units of {limit.name!r}, which "
                        f"has only {tokens.capacity} by its {measure.value}, so it could never "
                        "run; lower units= or raise the limit"
                    )

    def add(self, registration: Registration) -> None:
        """Register a handler under its kind and its aliases.

        Raises: ConfigError: a name is taken, or its breaker is defined differently elsewhere.
        """
        for name in (registration.kind, *registration.aliases):
            if name in self._registrations:
                raise ConfigError(
                    f"two handlers are registered for kind {name!r}; give one another name="
                )
        self._define(registration)
        for name in (registration.kind, *registration.aliases):
            self._registrations[name] = registration

    def _define(self, registration: Registration) -> None:
        breaker = registration.breaker
        if not isinstance(breaker, Breaker | str | None):
            raise ConfigError(
                f"kind {registration.kind!r}: breaker must be a Breaker or the name of one, got "
                f"{breaker!r}"
            )
        if isinstance(breaker, Breaker):
            rule = breaker.rule
            if self._breakers.setdefault(rule.name, rule) != rule:
                raise ConfigError(
                    f"breaker {rule.name!r} is defined twice, and differently; define it once and "
                    f"refer to it with breaker={rule.name!r}"
                )

    def __getitem__(self, kind: str) -> Registration:
        """Return a kind's registration.

        Raises: UnknownKind: no handler is registered; the error lists similar kinds.
        """
        try:
            return self._registrations[kind]
        except KeyError:
            # Imported here: it takes as long to load as this whole module.
            import difflib

            own = [name for name in self._registrations if not name.startswith(RESERVED)]
            near = difflib.get_close_matches(kind, own, n=5, cutoff=0.3)
            raise UnknownKind(kind, tuple(near)) from None

    def checked_payload(self, kind: str, value: Any, *, limit: int) -> bytes:
        """Encode a payload that a person wrote; of a kind that is known here, it has to fit.

        Raises:
            PayloadError: it does not fit the handler, or is too large.
        """
        payload = encode_json("payload", value, limit=limit)
        if kind in self:
            self[kind].target.codec.decode(payload, kind=kind)
        return payload

    def readable_payload(self, kind: str, payload: bytes, *, whole: bool = False) -> Any:
        """Return a stored payload as people read it: with the fields of the messages known here.

        Of a `whole` payload nothing is lost: messages with unknown fields stay bytes.
        """
        value = value_of(payload)
        if kind not in self:
            return value
        return self[kind].target.codec.messages.decoded(value, whole=whole)

    def readable(self, job: Job) -> Job:
        """Return a job in which a person can read the messages whose classes are known here."""
        if job.kind not in self:
            return job
        target = self[job.kind].target
        return with_decoded_messages(job, target.codec.messages, target.result_messages)

    def __contains__(self, kind: str) -> bool:
        """Return whether a kind, or an alias, is registered."""
        return kind in self._registrations

    def __iter__(self) -> Iterator[str]:
        """Iterate over all kinds and aliases."""
        return iter(self._registrations)

    def rule_of(self, kind: str) -> Rule | None:
        """Return the rule of a kind's breaker.

        A kind that names none has an implicit one, if there are errors that count as system errors.

        Raises: ConfigError: the kind names a breaker that is not defined.
        """
        registration = self._registrations[kind]
        match registration.breaker:
            case None:
                classes = reached(registration.errors, self._errors)
                mattering = (each for each in classes if callable(each) or each is _SYSTEM)
                return own_rule(registration.kind) if any(mattering) else None
            case str(name) if name not in self._breakers:
                known = ", ".join(sorted(self._breakers)) or "none"
                raise ConfigError(
                    f"kind {kind!r} uses breaker {name!r}, which is not defined; known breakers: "
                    f"{known}. Is the module that defines Breaker({name!r}, ...) imported?"
                )
            case str(name):
                return self._breakers[name]
            case defined:
                return defined.rule

    def rules(self) -> dict[str, Rule]:
        """Return the rule of each kind that has a breaker.

        Raises: ConfigError: a kind names a breaker that is not defined.
        """
        found = {kind: self.rule_of(kind) for kind in self._registrations}
        return {kind: rule for kind, rule in found.items() if rule is not None}

    def pools(self, *, isolate: bool = False) -> dict[str, Pool]:
        """Return where the handler of each kind runs; `isolate` is the app's setting for `def`."""
        return {kind: each.pool(isolate=isolate) for kind, each in self._registrations.items()}

    def targets(self) -> dict[str, timedelta]:
        """Return the target of each kind that has one: how long its jobs may wait for
        their start.
        """
        return {
            kind: each.slo for kind, each in self._registrations.items() if each.slo is not None
        }


def checked_call_hook(hook: CallHook) -> CallHook:
    """Return a hook for the threads of handlers.

    Raises: ConfigError: it is a coroutine function, which no thread would await.
    """
    if inspect.iscoroutinefunction(hook):
        raise ConfigError(
            f"a hook in a handler's thread must be a plain function, got {hook!r}; "
            "coroutines belong to @app.on_job_start and @app.on_job_complete"
        )
    return hook
