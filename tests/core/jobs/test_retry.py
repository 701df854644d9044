"""The laws of retry policies: how long each failure waits, and when there is no next try."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.errors import PayloadError, PayloadInvalid, PermanentError, RetryAfter
from windlass.core.jobs.retry import Backoff, Retry

SECOND = timedelta(seconds=1)
quick = settings(max_examples=40)
jitters = st.floats(0, 1, exclude_max=True)


def tries(policy: Retry, error: BaseException, *, override: int | None = None) -> int:
    """Return how often a job runs that raises this error every time."""
    failures = 1
    while policy.is_retryable(error, failures=failures, override=override):
        failures += 1
    return failures


# -- how long (D4) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 1), (2, 2), (3, 4), (4, 8), (8, 128), (9, 256), (10, 300), (11, 300), (10_000, 300)],
)
def test_the_nth_failure_waits_twice_as_long_as_the_one_before_up_to_five_minutes(
    failures: int, seconds: int
) -> None:
    assert Backoff().delay(failures, 0) == timedelta(seconds=seconds) / 2
    assert abs(Backoff().delay(failures, math.nextafter(1, 0)) - timedelta(seconds=seconds)) < (
        timedelta(milliseconds=1)
    )


@quick
@given(st.integers(1, 10_000), jitters)
def test_the_nth_failure_waits_half_to_all_of_its_backoff(failures: int, jitter: float) -> None:
    whole = timedelta(seconds=min(2 ** (failures - 1), 300))
    assert whole / 2 <= Backoff().delay(failures, jitter) <= whole


@quick
@given(st.integers(1, 10_000), jitters, jitters)
def test_more_jitter_never_waits_less(failures: int, less: float, more: float) -> None:
    less, more = sorted((less, more))
    assert Backoff().delay(failures, less) <= Backoff().delay(failures, more)


@quick
@given(
    st.integers(1, 10_000),
    st.timedeltas(timedelta(0), timedelta(days=1)),
    st.integers(1, 10),
    st.timedeltas(timedelta(days=1), timedelta(days=36525)),
)
def test_a_backoff_of_ones_own_follows_the_same_formula_without_overflow(
    failures: int, base: timedelta, factor: int, cap: timedelta
) -> None:
    wait = Backoff(base=base, factor=factor, cap=cap).delay(failures, 0)
    exact = min(Fraction(base // timedelta.resolution) * factor ** (failures - 1),
                Fraction(cap // timedelta.resolution)) / 2  # fmt: skip
    # A float has 53 bits, so a century of microseconds is off by one at most.
    assert abs(wait // timedelta.resolution - exact) <= 1 + exact / 2**50


def test_a_backoff_of_nothing_never_waits() -> None:
    """Its growth overflows a float at the 1,025th failure: no reason to wait for the cap."""
    assert Backoff(base=timedelta(0)).delay(10_000, 0.9) == timedelta(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(factor=math.nan),
        lambda: Backoff(factor=-2.0),
        lambda: Backoff(base=-SECOND),
        lambda: Backoff(cap=-SECOND),
        lambda: Retry(initial="1s", factor=-1.0),
        lambda: Retry(initial="1s", factor=math.nan),
        lambda: Retry(initial="-1s"),
        lambda: Retry(max_retries=-1),
        lambda: Retry.network(-1),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_written(
    make: Callable[[], object],
) -> None:
    """Later would be while a failure is settled, in a worker, where nobody can mend it."""
    with pytest.raises(ValueError):
        make()


def test_a_policy_says_its_waits_itself_or_by_a_backoff_and_not_by_both() -> None:
    policy = Retry(max_retries=7, initial="5s", factor=3, max_delay="1m", when=lambda _: False)
    waits = Backoff(base=timedelta(seconds=5), factor=3, cap=timedelta(minutes=1))
    assert policy.backoff == waits
    assert policy == Retry(max_retries=7, backoff=waits, when=policy.when)
    assert policy.without_vetoes().backoff == waits
    with pytest.raises(ValueError, match="backoff= cannot be combined with initial="):
        Retry(backoff=waits, initial="1s")


def test_a_backoff_of_text_is_refused_with_what_to_write() -> None:
    wrong: Any = "1s"
    with pytest.raises(TypeError, match=r"base must be a timedelta, got '1s'; write Retry\(init"):
        Backoff(base=wrong)
    with pytest.raises(TypeError, match="backoff must be a Backoff, got '1s'"):
        Retry(backoff=wrong)


# -- how often (A4, B6) ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "least", "most"),
    [
        (Retry.network(), 3, 5),
        (Retry.rate_limit(), 5, 10),
        (Retry.external_api(), 3, 3),
        (Retry.invalid_input(), 0, 0),
        (Retry.never(), 0, 0),
        (Retry(), 3, 3),
    ],
)
def test_a_preset_retries_within_the_bounds_of_its_kind_of_failure(
    policy: Retry, least: int, most: int
) -> None:
    retries = tries(policy, ValueError()) - 1
    assert least <= retries <= most


@pytest.mark.parametrize("preset", [Retry.network, Retry.rate_limit, Retry.external_api])
@quick
@given(retries=st.integers(0, 50))
def test_a_preset_takes_another_number(preset: Callable[[int], Retry], retries: int) -> None:
    assert tries(preset(retries), ValueError()) == retries + 1


@quick
@given(st.integers(0, 50), st.integers(0, 50))
def test_a_policy_without_a_number_takes_the_apps(default: int, failures: int) -> None:
    assert Retry().is_retryable(ValueError(), failures=failures, default=default) == (
        failures <= default
    )


@quick
@given(st.none() | st.integers(0, 50), st.integers(0, 50))
def test_the_jobs_own_number_replaces_that_of_its_policy(own: int | None, override: int) -> None:
    assert tries(Retry(max_retries=own), ValueError(), override=override) == override + 1


@quick
@given(st.integers(0, 20), st.integers(0, 20))
def test_the_jobs_own_number_lifts_no_limit_of_an_exceptions(limit: int, override: int) -> None:
    policy = Retry(max_retries=9, on={OSError: Retry(max_retries=limit)})
    assert tries(policy, OSError(), override=override) == min(limit, override) + 1
    assert tries(policy, OSError()) == limit + 1


@quick
@given(st.integers(0, 20))
def test_the_jobs_own_number_bounds_an_exception_whose_policy_states_none(override: int) -> None:
    policy = Retry(max_retries=9, on={OSError: Retry(initial="9s")})
    assert tries(policy, OSError(), override=override) == override + 1


# -- which errors (B6, B7, E4) ---------------------------------------------------------------------


class Refused(ConnectionError):
    """Nearer to ConnectionError than to OSError."""


class Mixed(KeyError, OSError):
    """Its method resolution order says KeyError first."""


@pytest.mark.parametrize(
    ("error", "retries"),
    [
        (Refused(), 4),
        (ConnectionResetError(), 4),
        (ConnectionError(), 4),
        (OSError(), 2),
        (TimeoutError(), 2),
        (Mixed(), 1),
        (LookupError(), 7),
        (IndexError(), 7),
        (ValueError(), 7),
        (KeyboardInterrupt(), 7),
    ],
)
def test_the_nearest_base_class_decides(error: BaseException, retries: int) -> None:
    policy = Retry(
        max_retries=7,
        on={
            OSError: Retry(max_retries=2),
            ConnectionError: Retry(max_retries=4),
            KeyError: Retry(max_retries=1),
        },
    )
    assert tries(policy, error) == retries + 1


def test_a_group_is_governed_by_the_first_policy_for_what_it_holds() -> None:
    network, rest = Retry.network(), Retry.never()
    policy = Retry(on={ConnectionError: network, Exception: rest})
    assert policy.for_error(ExceptionGroup("g", [ConnectionError(), ValueError()])) is network
    assert policy.for_error(ExceptionGroup("g", [ValueError(), ConnectionError()])) is rest


def test_an_exceptions_policy_brings_its_own_backoff() -> None:
    policy = Retry(on={OSError: Retry(initial="40s")})
    assert policy.for_error(ConnectionError()).backoff.base == timedelta(seconds=40)
    assert policy.for_error(ValueError()).backoff == Backoff()


def test_when_has_a_veto_and_sees_the_error() -> None:
    policy = Retry(when=lambda error: "busy" in str(error))
    assert policy.is_retryable(ValueError("busy"), failures=1)
    assert not policy.is_retryable(ValueError("gone"), failures=1)


def test_when_cannot_lift_the_limit() -> None:
    assert tries(Retry(max_retries=2, when=lambda _: True), ValueError()) == 3


def test_when_has_its_veto_only_where_its_policy_governs() -> None:
    policy = Retry(when=lambda _: False, on={OSError: Retry.network()})
    assert policy.is_retryable(OSError(), failures=1)
    assert not policy.is_retryable(ValueError(), failures=1)


class AccountClosed(PermanentError):
    """A user's own permanent error."""


@pytest.mark.parametrize(
    "error",
    [
        PermanentError(),
        AccountClosed(),
        PayloadError(),
        PayloadInvalid("mail", "to", "missing"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    "policy",
    [
        Retry(max_retries=100),
        Retry(max_retries=100, when=lambda _: True),
        Retry(on={PermanentError: Retry.network(), PayloadError: Retry.network()}),
    ],
)
def test_a_permanent_error_is_never_retried(error: BaseException, policy: Retry) -> None:
    assert tries(policy, error, override=100) == 1


def test_retry_after_is_bounded_like_any_failure() -> None:
    assert tries(Retry(max_retries=2), RetryAfter("1s")) == 3


def test_a_backoff_waits_as_long_as_its_base_says() -> None:
    assert Retry(initial="10m").backoff.delay(1, 1.0) == timedelta(minutes=10)
    assert Retry(initial="1s").backoff.delay(50, 1.0) == timedelta(minutes=5)
    with pytest.raises(ValueError, match="must be at least the first, 10m, got 5m"):
        Retry(initial="10m", max_delay="5m")


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ("120", timedelta(seconds=120)),
        (" 5 ", timedelta(seconds=5)),
        ("0.5", timedelta(milliseconds=500)),
        ("2m", timedelta(minutes=2)),
        ("Wed, 21 Oct 2026 07:28:00 GMT", datetime(2026, 10, 21, 7, 28, tzinfo=UTC)),
    ],
)
def test_a_retry_can_be_asked_for_as_http_does(given: str, due: object) -> None:
    assert RetryAfter(given).due == due


@pytest.mark.parametrize("given", ["", "soon", "Wed, 99 Oct", "-5", "1" * 30])
def test_a_time_to_retry_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"RetryAfter must be given a duration, .*HTTP date, got"):
        RetryAfter(given)
