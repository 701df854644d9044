"""Owns what makes a job unique, or known as done: by which key, among which jobs, for how long."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace as replaced

from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.jobs.job import Job, NewJob, OnDuplicate, UniqueKey
from windlass.core.jobs.states import WAITING, State
from windlass.core.policies.keys import Key, checked_key, value_by
from windlass.core.values.durations import Duration, duration, resolve
from windlass.core.values.names import check_name

Scope = Literal["kind", "queue", "global"]
Until = Literal["claimed", "settled"]
_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Unique:
    """The uniqueness of jobs: while a job holds a key, an enqueue with the same key adds nothing.

    In `@app.job(unique=...)` the `key` is the name of an argument or a function of the arguments,
    and None as its value holds no key; in `using(unique=...)` it is the key itself.

    `scope` says among which jobs it is unique: those of the same kind, of the same queue, or all.
    `until` says how long it is held: until the job is claimed (so while it waits), until it is
    settled for good, or for a time from its enqueue on ("24h"), in which it is held even if the
    job has ended.

    `on_duplicate` says what a duplicate does to the job that holds the key, as long as that has not
    been started: "keep" it; "replace" its arguments; "push" its due time back to that of the
    duplicate (debounce); "supersede" it, which is both. Unless it is to keep, keys are held until
    claimed by default, so that what comes while the job runs becomes a job of its own.

    Raises:
        ConfigError: one of these is something else.

    Example:
        `@app.job(unique=Unique("invoice_id", until="24h"))`
    """

    key: Key
    _: KW_ONLY
    scope: Scope = "kind"
    until: Until | Duration | None = None
    on_duplicate: OnDuplicate = "keep"

    def __post_init__(self) -> None:
        if not callable(self.key) and not isinstance(self.key, str):
            raise ConfigError(f"a unique key must be text or a function, got {self.key!r}")
        _check("scope", self.scope, get_args(Scope))
        _check("on_duplicate", self.on_duplicate, get_args(OnDuplicate))
        _ = self.span

    @property
    def span(self) -> Until | timedelta:
        """How long the key is held, as the store has it."""
        until = self.until
        if until is None:
            return "settled" if self.on_duplicate == "keep" else "claimed"
        if until == "claimed":
            return "claimed"
        if until == "settled":
            return "settled"
        try:
            span = duration(until)
        except (ValueError, TypeError):
            span = timedelta(0)
        if not span:
            raise ConfigError(
                f"until must be 'claimed', 'settled' or a duration like '24h', got {until!r}"
            )
        return span

    def held_as(self, key: str, *, kind: str, queue: str) -> UniqueKey:
        """Return the key as the store keeps it, with a prefix for its scope."""
        # No kind is empty, so no key of a kind begins like the keys of the other scopes.
        prefix = {"kind": kind, "queue": f":queue:{queue}", "global": ":global"}[self.scope]
        return UniqueKey(key=f"{prefix}:{key}", until=self.span, on_duplicate=self.on_duplicate)


class Identity(Struct, frozen=True, kw_only=True):
    """The uniqueness and idempotency of a kind, from its `@app.job` or its `Kind`."""

    unique: Unique | None = None
    idempotency_key: Key | None = None
    idempotent: bool = False
    """Whether a job is skipped whose idempotency or unique key was completed before."""
    defaults: Mapping[str, Any] = _NO_DEFAULTS
    """The values of arguments that are not given."""

    def unique_with(self, given: str | Unique) -> Unique:
        """Return the uniqueness of a job with a key of its own; otherwise that of the kind."""
        if isinstance(given, Unique):
            return given
        return Unique(given) if self.unique is None else replace(self.unique, key=given)

    def unique_key_of(self, kind: str, value: Any) -> str | None:
        """Return the unique key in a job's arguments, if they have one.

        Raises:
            PayloadInvalid: it cannot be found, or cannot be a key.
        """
        return (
            None if self.unique is None else self._computed(kind, "unique", self.unique.key, value)
        )

    def idempotency_key_of(self, kind: str, value: Any) -> str | None:
        """Return the idempotency key in a job's arguments, if they have one.

        Raises:
            PayloadInvalid: it cannot be found, or cannot be a key.
        """
        key = self.idempotency_key
        return None if key is None else self._computed(kind, "idempotency", key, value)

    def _computed(self, kind: str, what: str, key: Key, value: Any) -> str | None:
        if self.defaults and isinstance(value, Mapping):
            value = {**self.defaults, **value}
        try:
            found = value_by(key, value)
            return None if found is None else check_name(f"{what} key", _text(found))
        except Exception as error:
            raise PayloadInvalid(
                kind, "", f"computing its {what} key failed: {type(error).__qualname__}: {error}"
            ) from error


NO_IDENTITY = Identity()
"""The identity of most kinds: no unique key and no idempotency key."""


def identity_of(
    kind: str,
    *,
    unique: Key | Unique | None = None,
    idempotency_key: Key | None = None,
    idempotent: bool = False,
    parameters: Collection[str] | None = None,
    defaults: Mapping[str, Any] = _NO_DEFAULTS,
) -> Identity:
    """Return the identity declared for a kind; `parameters` are the handler's, if known."""
    if unique is None and idempotency_key is None and not idempotent:
        return NO_IDENTITY
    rule = unique if unique is None or isinstance(unique, Unique) else Unique(unique)
    if rule is not None:
        checked_key(kind, rule.key, parameters)
    if idempotency_key is not None:
        checked_key(kind, idempotency_key, parameters)
    return Identity(
        unique=rule, idempotency_key=idempotency_key, idempotent=idempotent, defaults=defaults
    )


def amended(holder: Job, duplicate: NewJob, now: datetime) -> Job | None:
    """Return the holder of a unique key after a duplicate came; None if that changes nothing.

    A holder that was started before is kept: its steps used its own payload, and a retry continues
    with that. So is one of another kind, since its handler could not take the payload.
    """
    on_duplicate = "keep" if duplicate.unique is None else duplicate.unique.on_duplicate
    if on_duplicate == "keep" or holder.attempt or holder.state not in WAITING:
        return None
    if holder.kind != duplicate.kind:
        return None
    after = holder
    if on_duplicate != "push":
        after = replaced(
            after, payload=duplicate.payload, key=duplicate.key, headers=duplicate.headers
        )
    if on_duplicate != "replace" and duplicate.due is not None:
        due_at = resolve(duplicate.due, now)
        # Later only: the latest of simultaneous duplicates wins, in whatever order they come.
        if due_at > max(now, holder.due_at):
            after = replaced(after, due_at=due_at, state=State.SCHEDULED)
    return None if after == holder else after


def _check(what: str, given: object, words: tuple[str, ...]) -> None:
    if given not in words:
        known = ", ".join(map(repr, words))
        raise ConfigError(f"{what} of a unique key must be one of {known}, got {given!r}")


def _text(found: object) -> str:
    # The default repr contains an address, so the key would differ in every process.
    if type(found).__str__ is object.__str__ and type(found).__repr__ is object.__repr__:
        raise TypeError(
            f"a {type(found).__qualname__} cannot be a key; use text, a number or a UUID"
        )
    return str(found)
