"""The class of an error decides what becomes of its job."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.jobs.settling import JOB, after, failed, settled
from windlass.core.errors import StoreUnavailable
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.jobs.outcomes import TimedOut
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy
from windlass.core.jobs.states import State

quick = settings(max_examples=40)
jitters = st.floats(0, 1, exclude_max=True)
HALF_MINUTE = timedelta(seconds=30)
AWAY = StoreUnavailable("away")


# -- the classes of errors (D9) --------------------------------------------------------------------


class Down(Exception):
    pass


def classes(error_class: ErrorClass) -> Policy:
    return Policy(retry=Retry(), app_errors={Down: error_class})


@pytest.mark.parametrize(
    ("error_class", "state", "failures"),
    [
        (ErrorClass.TRANSIENT, State.SCHEDULED, 1),
        (ErrorClass.PERMANENT, State.DEAD, 1),
        (ErrorClass.SYSTEM, State.SCHEDULED, 0),
        (ErrorClass.RESOURCE, State.SCHEDULED, 1),
    ],
)
def test_the_class_of_an_error_decides_and_is_kept_with_the_job_and_its_attempt(
    error_class: ErrorClass, state: State, failures: int
) -> None:
    move = settled(failed(Down()), policy=classes(error_class))
    assert (move.state, move.failures) == (state, failures)
    assert move.error is not None
    assert move.error.error_class is error_class
    assert move.attempt is not None
    assert move.attempt.error == move.error


@quick
@given(st.integers(1, 200), jitters)
def test_a_system_error_waits_longer_the_longer_the_system_is_down(n: int, jitter: float) -> None:
    job = JOB
    for _ in range(n):
        move = settled(failed(AWAY), job=job, jitter=jitter)
        assert (move.state, move.failures) == (State.SCHEDULED, 0)
        assert move.attempt is not None
        job = replace(after(job, move), history=(*job.history, move.attempt)[-100:])
    assert move.due == timedelta(seconds=min(5 * 2 ** (n - 1), 300)) * (0.5 + jitter / 2)
    assert (job.failures, job.attempt) == (0, n + 1)


def test_a_system_that_was_back_in_between_is_waited_for_from_the_start() -> None:
    outage = [settled(failed(AWAY)).attempt, settled(failed(AWAY)).attempt]
    between = settled(failed(ValueError())).attempt
    history = tuple(each for each in (*outage, between) if each is not None)
    move = settled(failed(AWAY), job=replace(JOB, history=history))
    assert move.due == timedelta(seconds=2.5)


def test_neither_a_limit_nor_a_veto_is_asked_about_a_system_error() -> None:
    policy = Policy(retry=Retry(max_retries=0, when=lambda error: False), max_retries=0)
    assert settled(failed(AWAY), policy=policy).state is State.SCHEDULED


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_timeout_of_the_job_is_charged_whatever_timeout_errors_are(
    error_class: ErrorClass,
) -> None:
    """Prevents: a handler that always hangs is a system error, and is run for ever."""
    policy = Policy(retry=Retry(), app_errors={TimeoutError: error_class})
    move = settled(TimedOut(after=HALF_MINUTE), policy=policy)
    assert (move.state, move.failures) == (State.SCHEDULED, 1)
    assert move.error is not None
    assert move.error.error_class is ErrorClass.TRANSIENT


@pytest.mark.parametrize(("base", "wait"), [("1s", 15.0), ("10m", 300.0), ("40s", 20.0)])
def test_a_resource_error_never_waits_less_than_its_policy_says(base: str, wait: float) -> None:
    policy = Policy(retry=Retry(initial=base))
    assert settled(failed(MemoryError()), policy=policy).due == timedelta(seconds=wait)


def test_a_policy_for_the_exception_goes_before_the_classes_of_the_app() -> None:
    policy = Policy(
        retry=Retry(on={Down: Retry(initial="8s")}), app_errors={Down: ErrorClass.SYSTEM}
    )
    move = settled(failed(Down()), policy=policy)
    assert (move.due, move.failures) == (timedelta(seconds=4), 1)


def test_between_a_policy_and_a_class_of_the_kind_the_nearest_base_class_decides() -> None:
    retry = Retry(on={OSError: Retry.network()})
    nearer = Policy(retry=retry, errors={ConnectionError: ErrorClass.SYSTEM})
    farther = Policy(retry=retry, errors={Exception: ErrorClass.SYSTEM})
    refused = failed(ConnectionRefusedError())
    assert settled(refused, policy=nearer).failures == 0
    assert settled(refused, policy=farther).failures == 1


def test_the_classes_of_the_kind_go_before_those_of_the_app() -> None:
    policy = Policy(
        retry=Retry(),
        errors={Exception: ErrorClass.TRANSIENT},
        app_errors={Down: ErrorClass.PERMANENT},
    )
    assert settled(failed(Down()), policy=policy).state is State.SCHEDULED


def test_without_functions_a_policy_keeps_what_is_written_in_its_tables() -> None:
    def broken(_: BaseException) -> NoReturn:
        raise KeyError("status")

    policy = Policy(
        retry=Retry(when=broken),
        errors={ValueError: broken},
        app_errors={OSError: broken, Down: ErrorClass.PERMANENT},
    )
    with pytest.raises(KeyError, match="status"):
        settled(failed(OSError()), policy=policy)
    tolerant = policy.without_functions()
    assert settled(failed(ValueError()), policy=tolerant).state is State.SCHEDULED
    assert settled(failed(OSError()), policy=tolerant).state is State.SCHEDULED
    assert settled(failed(Down()), policy=tolerant).state is State.DEAD
