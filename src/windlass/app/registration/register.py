"""Owns how a handler and its options become a registration and a producer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from windlass.app.enqueueing.options import Options
from windlass.app.producer import Handler, Producer
from windlass.app.registration.job_options import DEFAULT, JobOptions, check_options
from windlass.core.errors import ConfigError
from windlass.core.failures.error_classes import Classes, checked_classes
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.unique import Identity, identity_of
from windlass.core.policies.fairness import Weights, checked_weights
from windlass.core.policies.keys import Key, checked_key
from windlass.core.policies.limit import Limit, checked_units, limit_of_kind
from windlass.core.policies.slo import checked_target
from windlass.core.values.durations import Duration
from windlass.core.values.job_options import (
    checked_callables,
    checked_duration,
    checked_memory,
    checked_tags,
    checked_timeout,
)
from windlass.core.values.names import check_own_name
from windlass.handlers.registry import Batch, Registration
from windlass.handlers.target import Target

if TYPE_CHECKING:
    from windlass.app.app import Windlass


def register(
    app: Windlass,
    kind: str,
    function: Any,
    target: Target,
    options: JobOptions,
    check: Callable[[str, object], str] = check_own_name,
    fields: tuple[str, ...] = (),
) -> Handler[Any, Any, Any, Any]:
    """Check the options, add the handler to the registry of the app, and return it."""
    check_options(kind, options)
    target.needs_under(app.providers.overrides_in_force())  # Raises for what no run can have.
    retry, errors = _retry_and_errors(kind, options)
    key = _key(kind, target, options)
    tags = checked_tags(options.tags)
    defaults = Options(queue=options.queue, priority=options.priority, tags=tags)
    registration = Registration(
        kind=check("kind", kind),
        aliases=tuple(check_own_name("kind", alias) for alias in options.aliases),
        target=target,
        queue=defaults.queue,
        priority=defaults.priority,
        tags=tags,
        retry=retry,
        errors=errors,
        timeout=_timeout(options.timeout),
        middleware=checked_callables("middleware", options.middleware),
        module=str(getattr(function, "__module__", "")),
        isolate=options.isolated,
        memory=None if options.memory is None else checked_memory(options.memory),
        grace=None if options.grace is None else checked_duration("grace", options.grace),
        batch=_batch(kind, options),
        key=key,
        limit=_limit(kind, options, has_key=key is not None),
        shared_limit=options.limit,
        units=checked_units(kind, options.limit, options.units),
        breaker=options.breaker,
        weights=_weights(kind, options),
        slo=None if options.slo is None else checked_target(kind, options.slo),
        identity=_identity(kind, target, options),
    )
    app.registry.add(registration)
    producer = _producer(app, kind, target, defaults, registration, fields)
    return Handler(function, producer)


def _producer(
    app: Windlass,
    kind: str,
    target: Target,
    defaults: Options,
    registration: Registration,
    fields: tuple[str, ...],
) -> Producer[Any, Any]:
    return Producer(
        app,
        kind,
        codec=target.codec,
        payload=target.payload,
        hint=target.result,
        options=defaults,
        key=registration.key,
        identity=registration.identity,
        fields=fields,
    )


def _retry_and_errors(kind: str, options: JobOptions) -> tuple[Retry, Classes]:
    if options.retry is not None and options.max_retries is not None:
        raise ConfigError(
            f"kind {kind!r}: retry=Retry(max_retries=...) and max_retries= cannot be combined; "
            "leave one out"
        )
    if options.isolate is False and options.isolated:
        raise ConfigError(
            f"kind {kind!r}: cpu_bound= and memory= need a child process; leave out isolate=False"
        )
    errors = checked_classes(options.errors)
    retry = options.retry or Retry(max_retries=options.max_retries)
    if both := errors.keys() & retry.on.keys():
        names = ", ".join(sorted(each.__qualname__ for each in both))
        raise ConfigError(
            f"kind {kind!r}: {names} cannot be both in errors= and in retry=Retry(on=...): errors "
            "with a retry policy of their own are transient"
        )
    return retry, errors


def _limit(kind: str, options: JobOptions, *, has_key: bool) -> Limit | None:
    return limit_of_kind(
        kind,
        rate=options.rate,
        burst=options.burst,
        concurrency=options.concurrency,
        per=options.per,
        ordered=options.ordered,
        has_key=has_key,
    )


def _batch(kind: str, options: JobOptions) -> Batch | None:
    if options.batch_size is None:
        return None
    if options.isolated:
        raise ConfigError(
            f"kind {kind!r}: batch_size= cannot be combined with isolate=, cpu_bound= or memory=, "
            "since a child process runs one job at a time; leave them out"
        )
    return Batch(
        size=options.batch_size, timeout=checked_duration("batch_timeout", options.batch_timeout)
    )


def _key(kind: str, target: Target, options: JobOptions) -> Key | None:
    key, fair_by = options.key, options.fair_by
    if key is not None and fair_by is not None and key != fair_by:
        raise ConfigError(
            f"kind {kind!r}: key= and fair_by= must be the same, since limits and fairness share "
            "one key; leave one out"
        )
    chosen = fair_by if key is None else key
    return None if chosen is None else checked_key(kind, chosen, target.parameters)


def _weights(kind: str, options: JobOptions) -> Weights | None:
    if options.fair_by is not None:
        return checked_weights(kind, {} if options.weights is None else options.weights)
    if options.weights is not None:
        raise ConfigError(f"kind {kind!r}: weights= must be given together with fair_by=")
    return None


def _identity(kind: str, target: Target, options: JobOptions) -> Identity:
    if options.idempotent not in (None, "result"):
        raise ConfigError(
            f'kind {kind!r}: idempotent must be "result", got {options.idempotent!r}; '
            "leave it out to run every job"
        )
    return identity_of(
        kind,
        unique=options.unique,
        idempotency_key=options.idempotency_key,
        idempotent=options.idempotent is not None,
        parameters=target.parameters,
        defaults=target.defaults,
    )


def _timeout(given: Duration | None) -> timedelta | Literal["default"] | None:
    if given is DEFAULT:
        return "default"
    return None if given is None else checked_timeout(given)
