"""Owns retry policies: whether a failure is tried again, and how long that waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Self

from windlass.core.durations import Duration, duration
from windlass.core.error_classes import leaves, lineage
from windlass.core.errors import PayloadError, Permanent


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """How the wait grows: `base * factor ** (n - 1)` after the n-th failure, up to `cap`."""

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=300)

    def __post_init__(self) -> None:
        if not (self.factor >= 1 and math.isfinite(self.factor)):
            raise ValueError(
                f"a backoff grows by a factor of 1 or more, and {self.factor!r} is not"
            )
        if self.base < timedelta(0) or self.cap < timedelta(0):
            raise ValueError(f"a backoff waits, so it cannot be negative: {self.base}, {self.cap}")

    def delay(self, failures: int, jitter: float) -> timedelta:
        """Return the wait after the n-th failure; `jitter` in [0, 1) picks from its upper half."""
        try:
            wait = min(self.base * self.factor ** (failures - 1), self.cap)
        except OverflowError:
            wait = self.cap if self.base else self.base
        return wait * (0.5 + jitter / 2)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When a failed job is tried again, and how often.

    `max_retries=None` takes the app's setting (3). `on` gives exceptions policies of their own; the
    nearest base class decides, up to this policy's `max_retries` where it names none. `when` has a
    veto on every error that its policy governs. A system error is governed by none, unless `on`
    names it: see `ErrorClass`.

    Example:
        `Retry(max_retries=5, on={Timeout: Retry.network(), BadRequest: Retry.never()})`
    """

    max_retries: int | None = None
    backoff: Backoff = field(default_factory=Backoff)
    on: Mapping[type[BaseException], Retry] = field(default_factory=dict)
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

    @classmethod
    def never(cls) -> Self:
        """For whatever shall not be tried twice."""
        return cls(max_retries=0)

    def waiting(
        self, base: Duration = "1s", *, factor: float = 2.0, cap: Duration = "300s"
    ) -> Self:
        """Return the same policy with another backoff."""
        return replace(self, backoff=Backoff(base=duration(base), factor=factor, cap=duration(cap)))

    def for_error(self, error: BaseException) -> Retry:
        """Return the policy that governs this error: its nearest base class's, else this one.

        Of a group, the first exception that has a policy of its own decides.
        """
        for leaf in leaves(error):
            for base in lineage(leaf):
                if (policy := self.on.get(base)) is not None:
                    return policy
        return self

    def without_vetoes(self) -> Retry:
        """Return the same policy with every `when` left out."""
        on = {kind: policy.without_vetoes() for kind, policy in self.on.items()}
        return replace(self, when=None, on=on)

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
        if is_permanent(error):
            return False
        policy = self.for_error(error)
        if failures > self._limit(policy, default, override):
            return False
        return policy.when is None or policy.when(error)

    def _limit(self, policy: Retry, default: int, override: int | None) -> int:
        own = default if self.max_retries is None else self.max_retries
        if override is not None:
            own = override
        if policy is self or policy.max_retries is None:
            return own
        return policy.max_retries if override is None else min(override, policy.max_retries)


def is_permanent(error: BaseException) -> bool:
    """Say whether trying again cannot help: the error, or one in its group, says so."""
    return any(isinstance(leaf, Permanent | PayloadError) for leaf in leaves(error))
