"""Owns retry policies: whether a failure is tried again, and how long that waits.

`settle` chooses which delay applies: this one, one that a handler asked for, or one of the system.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from typing import Self

from windlass.core.errors import PayloadError, PermanentError
from windlass.core.failures.error_classes import leaves, lineage
from windlass.core.failures.exceptions import is_a
from windlass.core.values.durations import Duration, human
from windlass.core.values.job_options import checked_duration, checked_max_retries

_USUAL_CAP = timedelta(seconds=300)


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """The growth of the wait: `base * factor ** (n - 1)` after the n-th failure, up to `cap`.

    The cap is five minutes, or the base if that is longer, unless it is given.
    """

    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = _USUAL_CAP

    def __post_init__(self) -> None:
        for name in ("base", "cap"):
            if not isinstance(given := getattr(self, name), timedelta):
                raise TypeError(
                    f"{name} must be a timedelta, got {given!r}; write Retry(initial='5s', "
                    "max_delay='1h') for durations as text"
                )
        if self.cap is _USUAL_CAP and self.base > self.cap:
            object.__setattr__(self, "cap", self.base)
        if not (self.factor >= 1 and math.isfinite(self.factor)):
            raise ValueError(f"factor must be at least 1, got {self.factor!r}")
        if self.base < timedelta(0) or self.cap < timedelta(0):
            raise ValueError(f"base and cap must not be negative, got {self.base} and {self.cap}")
        if self.cap < self.base:
            raise ValueError(
                f"the longest wait must be at least the first, {human(self.base)}, got "
                f"{human(self.cap)}; raise max_delay=, or lower initial="
            )

    def delay(self, failures: int, jitter: float) -> timedelta:
        """Return the wait after the n-th failure; `jitter` in [0, 1) picks from its upper half."""
        try:
            wait = min(self.base * self.factor ** (failures - 1), self.cap)
        except OverflowError:
            wait = self.cap if self.base else self.base
        return wait * (0.5 + jitter / 2)


_USUAL = Backoff()


@dataclass(frozen=True, kw_only=True)
class Retry:
    """When a failed job is tried again, and how often.

    `max_retries=None` takes the app's setting (3). `on` gives exceptions policies of their own; the
    nearest base class decides, up to this policy's `max_retries` where it names none. `when` has a
    veto on every error that its policy governs. A system error is governed by none, unless `on`
    names it: see `ErrorClass`.

    The first wait is `initial` ("1s"), each further one `factor` (2) times as long, none longer
    than `max_delay` (five minutes, or `initial` if that is longer); a `Backoff` says the same.

    Example:
        `Retry(max_retries=5, initial="5s", on={BadRequest: Retry.never()})`
    """

    max_retries: int | None = None
    initial: InitVar[Duration | None] = None
    max_delay: InitVar[Duration | None] = None
    factor: InitVar[float | None] = None
    backoff: Backoff = _USUAL
    on: Mapping[type[BaseException], Retry] = field(default_factory=dict)
    when: Callable[[BaseException], bool] | None = None

    def __post_init__(
        self, initial: Duration | None, max_delay: Duration | None, factor: float | None
    ) -> None:
        if not (initial is max_delay is factor is None):
            object.__setattr__(self, "backoff", self._backoff(initial, max_delay, factor))
        if not isinstance(self.backoff, Backoff):
            raise TypeError(
                f"backoff must be a Backoff, got {self.backoff!r}; write Retry(initial='5s')"
            )
        if self.max_retries is not None:
            checked_max_retries(self.max_retries)
        if self.when is not None and not callable(self.when):
            raise ValueError(
                f"when must be a function of the error, got {self.when!r}; write "
                "when=lambda error: ..."
            )
        _check_on(self.on)

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
        """For handlers that must not run twice."""
        return cls(max_retries=0)

    def _backoff(
        self, initial: Duration | None, max_delay: Duration | None, factor: float | None
    ) -> Backoff:
        if self.backoff != _USUAL:
            raise ValueError(
                "backoff= cannot be combined with initial=, max_delay= or factor=; leave one out"
            )
        return Backoff(
            base=_USUAL.base if initial is None else checked_duration("initial", initial),
            factor=_USUAL.factor if factor is None else factor,
            cap=_USUAL_CAP if max_delay is None else checked_duration("max_delay", max_delay),
        )

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

    def at_most(self, default: int) -> int:
        """Return how often a job is retried, for errors without a policy of their own."""
        return default if self.max_retries is None else self.max_retries

    def _limit(self, policy: Retry, default: int, override: int | None) -> int:
        own = self.at_most(default)
        if override is not None:
            own = override
        if policy is self or policy.max_retries is None:
            return own
        return policy.max_retries if override is None else min(override, policy.max_retries)


def _check_on(given: object) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(
            f"on must be a mapping of exceptions to policies, got {given!r}; write "
            "on={GatewayBusy: Retry.rate_limit()}"
        )
    for error, policy in given.items():
        if not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(
                f"on must map exception classes, got {error!r}; write on={{ValueError: ...}}"
            )
        if not isinstance(policy, Retry):
            raise TypeError(
                f"the policy of {error.__qualname__} must be a Retry, got {policy!r}; write "
                "Retry.never() or Retry(max_retries=5)"
            )


def is_permanent(error: BaseException) -> bool:
    """Return whether retrying cannot help: the error, or one in its group, says so."""
    return any(is_a(leaf, PermanentError, PayloadError) for leaf in leaves(error))
