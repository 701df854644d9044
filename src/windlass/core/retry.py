"""Owns retry policies: whether a failure is tried again, and how long that waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Self

from windlass.core.durations import Duration, duration
from windlass.core.errors import PayloadError, Permanent

Exceptions = type[BaseException]


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """How the wait grows: `base * factor ** (n - 1)` after the n-th failure, up to `cap`."""

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=300)

    def delay(self, failures: int, jitter: float) -> timedelta:
        """Return the wait after the n-th failure; `jitter` in [0, 1) picks from its upper half."""
        try:
            wait = min(self.base * self.factor ** (failures - 1), self.cap)
        except OverflowError:
            wait = self.cap
        return wait * (0.5 + jitter / 2)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When a failed job is tried again, and how often.

    `max_retries=None` takes the app's setting (3). `on` gives exceptions policies of their own; the
    nearest base class decides. `when` has a veto on every error that the policy governs.

    Example:
        `Retry(max_retries=5, on={Timeout: Retry.network(), BadRequest: Retry.never()})`
    """

    max_retries: int | None = None
    backoff: Backoff = field(default_factory=Backoff)
    on: Mapping[Exceptions, Retry] = field(default_factory=lambda: MappingProxyType({}))
    when: Callable[[BaseException], bool] | None = None

    def __post_init__(self) -> None:
        if self.max_retries is not None and self.max_retries < 0:
            raise ValueError(f"max_retries cannot be negative: {self.max_retries}")

    @classmethod
    def network(cls, max_retries: int = 5) -> Self:
        """For connections that drop: five tries from one second on."""
        return cls(max_retries=max_retries)

    @classmethod
    def rate_limit(cls, max_retries: int = 10) -> Self:
        """For services that say "slow down": ten patient tries from five seconds on."""
        return cls(max_retries=max_retries, backoff=Backoff(base=timedelta(seconds=5)))

    @classmethod
    def external_api(cls, max_retries: int = 3) -> Self:
        """For other people's services: three tries from two seconds on."""
        return cls(max_retries=max_retries, backoff=Backoff(base=timedelta(seconds=2)))

    @classmethod
    def invalid_input(cls) -> Self:
        """For input that will not get better: straight to dead."""
        return cls(max_retries=0)

    never = invalid_input

    def waiting(
        self, base: Duration = "1s", *, factor: float = 2.0, cap: Duration = "300s"
    ) -> Self:
        """Return the same policy with another backoff."""
        return replace(self, backoff=Backoff(base=duration(base), factor=factor, cap=duration(cap)))

    def for_error(self, error: BaseException) -> Retry:
        """Return the policy that governs this error: its nearest base class's, else this one."""
        for base in type(error).__mro__:
            if (policy := self.on.get(base)) is not None:
                return policy
        return self

    def is_retryable(
        self,
        error: BaseException,
        *,
        failures: int,
        default: int = 3,
        override: int | None = None,
    ) -> bool:
        """Decide whether a job runs again after its n-th failure.

        `default` is the limit where the policy states none; `override` is the one that the job was
        enqueued with, which replaces the policy's own but lifts no limit of an exception's.
        """
        if isinstance(error, Permanent | PayloadError):
            return False
        policy = self.for_error(error)
        if failures > self._limit(policy, default, override):
            return False
        return policy.when is None or policy.when(error)

    def _limit(self, policy: Retry, default: int, override: int | None) -> int:
        if policy.max_retries is None:
            return default if override is None else override
        if override is None:
            return policy.max_retries
        return override if policy is self else min(override, policy.max_retries)
