"""The laws of the error tree: its drawing is true, each names a remedy and survives a journey."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from windlass.core import errors
from windlass.core.errors import (
    AmbiguousId,
    CalledFromEventLoop,
    ConfigError,
    EventTimeout,
    FanOutTooLarge,
    FlowInvalid,
    ImportFailed,
    InvalidTransition,
    JobCancelled,
    JobCrashed,
    JobDead,
    LeaseLost,
    MemoryExceeded,
    PayloadError,
    PayloadInvalid,
    PayloadTooLarge,
    PermanentError,
    ProviderError,
    QueueFull,
    ResultError,
    ResultInvalid,
    ResultTimeout,
    RetryAfter,
    SchemaMismatch,
    StepError,
    StepsChanged,
    StoreBusy,
    StoreError,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
    UnknownJob,
    UnknownKind,
    UnknownSchedule,
    WindlassError,
    WriteUncertain,
)

JOB = UUID("0199a8a0-0000-7000-8000-000000000001")
AT = datetime(2026, 1, 1, tzinfo=UTC)

SAMPLES: list[tuple[WindlassError, str]] = [
    # Beside each error: the part of its message that tells the reader what to do, or to know.
    (WindlassError("do this"), "do this"),
    (ConfigError("set WINDLASS_URL"), "set WINDLASS_URL"),
    (ImportFailed("importing 'shop' failed"), "importing 'shop' failed"),
    (ProviderError("pool", "could not be opened: OSError"), "'pool' could not be opened: OSError"),
    (PayloadError("send less"), "send less"),
    (PayloadInvalid("mail", "to", "Expected `str`"), "field 'to': Expected `str`"),
    (PayloadInvalid("mail", "", "not JSON"), "the payload: not JSON"),
    (PayloadTooLarge("mail", 300_000, 262_144), "enqueue its id, or raise WINDLASS_MAX_PAYLOAD"),
    (ResultInvalid("mail", "NaN has no JSON form"), "NaN has no JSON form"),
    (FanOutTooLarge(100, 20), "20 were already enqueued"),
    (UnknownKind("mail"), "is its module imported?"),
    (UnknownKind("mial", ("mail", "sms")), "Did you mean mail or sms?"),
    (UnknownJob(JOB), "retention"),
    (UnknownJob("nonsense"), "retention"),
    (AmbiguousId("0199", ("a", "b")), "several ids: a, b; add more digits"),
    (AmbiguousId("0199", tuple("abcdef")), "a, b, c, d, e and others; add more digits"),
    (UnknownSchedule("nightly"), "windlass schedules list"),
    (InvalidTransition(JOB, "completed", "be redriven", "enqueue it again"), "enqueue it again"),
    (CalledFromEventLoop("enqueue()", "await aenqueue()"), "write await aenqueue()"),
    (StoreError("mend it"), "mend it"),
    (StoreUnavailable("try again"), "try again"),
    (StoreBusy("somebody else holds it"), "somebody else holds it"),
    (WriteUncertain("it may have been written"), "it may have been written"),
    (StoreRefused("create it first, with createdb"), "with createdb"),
    (QueueFull(1_000, "start more workers"), "start more workers"),
    (SchemaMismatch("run windlass migrate"), "run windlass migrate"),
    (StoreForbidden("docs/postgresql.md lists the grants"), "lists the grants"),
    (JobCrashed("its process died of SIGSEGV"), "its process died of SIGSEGV"),
    (MemoryExceeded(600_000_000, 512_000_000), "used 600MB of memory, the limit is 512MB; raise"),
    (LeaseLost(JOB), "another worker has the job, or it was settled"),
    (ResultError(JOB, "it has no result"), "it has no result"),
    (ResultTimeout(JOB, "not within 10s; it goes on"), "it goes on"),
    (JobDead(JOB, "gave up after 4 failures", "ValueError: bad"), "ValueError: bad"),
    (JobDead(JOB, "gave up after 4 failures", None), "gave up after 4 failures"),
    (JobDead(JOB, "gave up after 4 failures", "KeyError: 4"), "failures: KeyError: 4"),
    (JobDead(JOB, "permanent error", "PermanentError: error"), "error: PermanentError: error"),
    (JobCancelled(JOB, "the order was withdrawn"), "the order was withdrawn"),
    (PermanentError("no such account"), "no such account"),
    (StepError("give each its own name"), "give each its own name"),
    (FlowInvalid("a flow needs a job"), "a flow needs a job"),
    (EventTimeout("paid:42"), "the event 'paid:42' did not arrive in time"),
    (StepsChanged("charge", "ship"), "'charge' was recorded next, but 'ship' came"),
    (StepsChanged("charge", None), "keep the names and the order"),
    (RetryAfter("5m", "slow down"), "slow down"),
    (RetryAfter(timedelta(seconds=5)), "retry requested in 5s"),
    (RetryAfter(AT), "2026-01-01"),
]

CLASSES = {
    name: error
    for name, error in vars(errors).items()
    if inspect.isclass(error) and issubclass(error, BaseException)
}


def tree() -> dict[str, str | None]:
    """Read the docstring's drawing: the name of each error, and of the one above it."""
    parents: dict[str, str | None] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"((?:[│├└─ ]{4})*)([A-Z]\w+)(?:\s{2,}|$)", line):
            depth = len(found[1]) // 4
            branch[depth:] = [found[2]]
            parents[found[2]] = branch[depth - 1] if depth else None
    return parents


def test_the_docstring_names_every_error_and_no_other() -> None:
    assert set(tree()) == set(CLASSES)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_docstring_shows_what_each_error_is_a_kind_of(name: str) -> None:
    parent = tree()[name]
    assert CLASSES[name].__bases__[0] is (CLASSES[parent] if parent else Exception)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_error_can_be_caught_as_a_windlass_error_and_says_what_it_is(name: str) -> None:
    assert issubclass(CLASSES[name], WindlassError)
    assert "__doc__" in vars(CLASSES[name])


def test_every_error_is_tried_below() -> None:
    assert {type(error) for error, _ in SAMPLES} == set(CLASSES.values())


@pytest.mark.parametrize(("error", "remedy"), SAMPLES, ids=lambda x: type(x).__name__)
def test_every_message_names_the_remedy(error: WindlassError, remedy: str) -> None:
    assert remedy in str(error)


@pytest.mark.parametrize("journey", [copy.copy, copy.deepcopy, pickle.loads])
@pytest.mark.parametrize("error", [error for error, _ in SAMPLES], ids=lambda x: type(x).__name__)
def test_every_error_crosses_a_process_boundary_unchanged(
    error: WindlassError, journey: Callable[..., object]
) -> None:
    """`args` that do not fit `__init__` break whoever unpickles the error, far from its raiser."""
    arrived = journey(pickle.dumps(error) if journey is pickle.loads else error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


def test_a_result_timeout_is_a_timeout_error() -> None:
    assert isinstance(ResultTimeout(JOB, "late"), TimeoutError)


@pytest.mark.parametrize("due", ["soon", -1, datetime(2026, 1, 1)])  # noqa: DTZ001 - naive
def test_retry_after_refuses_what_is_not_a_time(due: str | int | datetime) -> None:
    with pytest.raises(ValueError):
        RetryAfter(due)
