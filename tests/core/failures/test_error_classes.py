"""Which exception is in which class, by whose word."""

from __future__ import annotations

import errno
import importlib
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import (
    ConfigError,
    LeaseLost,
    PayloadInvalid,
    PermanentError,
    QueueFull,
    RetryAfter,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from windlass.core.failures.error_classes import (
    LIBRARIES,
    Classes,
    ErrorClass,
    checked_classes,
    class_of,
)
from windlass.core.jobs.ids import job_id

TRANSIENT, PERMANENT = ErrorClass.TRANSIENT, ErrorClass.PERMANENT
SYSTEM, RESOURCE = ErrorClass.SYSTEM, ErrorClass.RESOURCE


class Down(Exception):
    pass


class VeryDown(Down):
    pass


class Hopeless(PermanentError):
    pass


def os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


# -- what is known from the start ------------------------------------------------------------------

KNOWN = [
    (ValueError("bad"), TRANSIENT),
    (ConnectionRefusedError(), TRANSIENT),
    (TimeoutError(), TRANSIENT),
    (KeyboardInterrupt(), TRANSIENT),
    (SystemExit(1), TRANSIENT),
    (RetryAfter("1m"), TRANSIENT),
    (PermanentError("gone"), PERMANENT),
    (Hopeless("gone"), PERMANENT),
    (PayloadInvalid("send", "to", "missing"), PERMANENT),
    (StoreUnavailable("away"), SYSTEM),
    (StoreBusy("held"), TRANSIENT),
    (StoreError("?"), TRANSIENT),
    (QueueFull(9, "later"), TRANSIENT),
    (LeaseLost(job_id(0, 0)), TRANSIENT),
    (MemoryError(), RESOURCE),
    (os_error(errno.EMFILE), RESOURCE),
    (os_error(errno.ENFILE), RESOURCE),
    (os_error(errno.ENOMEM), RESOURCE),
    (os_error(errno.ENOBUFS), RESOURCE),
    (os_error(errno.ENOSPC), RESOURCE),
    (os_error(errno.EDQUOT), RESOURCE),
    (os_error(errno.ENOENT), TRANSIENT),
    (OSError("no number"), TRANSIENT),
]


@pytest.mark.parametrize(("error", "expected"), KNOWN, ids=[repr(row[0]) for row in KNOWN])
def test_built_in_error_classes(error: BaseException, expected: ErrorClass) -> None:
    assert class_of(error) is expected


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_exceptions_of_libraries_call_themselves_as_we_do(name: str) -> None:
    """Prevents: a library moves an exception, and ours knows a name that nobody has."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert f"{found.__module__}.{found.__qualname__}" == name
    assert class_of(found.__new__(found)) is LIBRARIES[name]


def test_an_exception_derived_from_that_of_a_library_is_in_its_class() -> None:
    asyncpg = importlib.import_module("asyncpg")
    assert class_of(asyncpg.TooManyConnectionsError("no more")) is RESOURCE


# -- what users say --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "tables", "expected"),
    [
        (Down(), [{Down: SYSTEM}], SYSTEM),
        (VeryDown(), [{Down: SYSTEM}], SYSTEM),
        (VeryDown(), [{Down: SYSTEM, VeryDown: PERMANENT}], PERMANENT),
        (Down(), [{Down: SYSTEM, VeryDown: PERMANENT}], SYSTEM),
        (ValueError(), [{Down: SYSTEM}], TRANSIENT),
        (Down(), [{}, {Down: SYSTEM}], SYSTEM),
        (VeryDown(), [{Exception: RESOURCE}, {VeryDown: SYSTEM}], RESOURCE),
        (MemoryError(), [{Exception: PERMANENT}], PERMANENT),
        (os_error(errno.ENOSPC), [{OSError: SYSTEM}], SYSTEM),
        (StoreBusy("held"), [{StoreUnavailable: PERMANENT}], PERMANENT),
        (SystemExit(), [{Exception: PERMANENT}], TRANSIENT),
        (SystemExit(), [{BaseException: PERMANENT}], PERMANENT),
    ],
)
def test_the_first_table_that_knows_a_base_class_decides_by_the_nearest(
    error: BaseException,
    tables: list[Classes],
    expected: ErrorClass,
) -> None:
    assert class_of(error, *tables) is expected


@pytest.mark.parametrize("said", [PermanentError("gone"), Hopeless("gone"), RetryAfter("1m")])
@pytest.mark.parametrize("error_class", ErrorClass)
def test_no_table_contradicts_what_the_handler_says_itself(
    said: Exception, error_class: ErrorClass
) -> None:
    table: Classes = {BaseException: error_class, type(said): error_class}
    assert class_of(said, table) is class_of(said)


def by_text(error: Exception) -> ErrorClass | None:
    return {"down": SYSTEM, "bad": PERMANENT}.get(str(error))


@pytest.mark.parametrize(
    ("error", "expected"),
    [(Down("down"), SYSTEM), (Down("bad"), PERMANENT), (Down("?"), RESOURCE)],
)
def test_a_classifier_returns_a_class_or_leaves_the_error_to_the_next_one(
    error: Exception, expected: ErrorClass
) -> None:
    assert class_of(error, {Down: by_text, Exception: RESOURCE}) is expected
    assert class_of(error, {Down: by_text}, {Down: RESOURCE}) is expected


def test_a_function_that_answers_nonsense_is_not_believed() -> None:
    nonsense: Any = lambda error: "later"  # noqa: E731
    with pytest.raises(ValueError, match="later"):
        class_of(Down(), {Down: nonsense})


# -- groups ----------------------------------------------------------------------------------------

USERS: Classes = {Down: SYSTEM, LookupError: PERMANENT}
SINGLE: list[Exception] = [ValueError(), Down(), MemoryError(), KeyError(), RetryAfter("1m")]
groups = st.recursive(
    st.sampled_from(SINGLE),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda of: ExceptionGroup("g", of)),
    max_leaves=6,
)


def inside(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for each in error.exceptions for leaf in inside(each)]
    return [error]


@given(groups)
def test_a_group_is_in_the_gravest_class_of_what_it_holds(error: Exception) -> None:
    gravest_last = [TRANSIENT, SYSTEM, RESOURCE, PERMANENT]
    found = [class_of(leaf, USERS) for leaf in inside(error)]
    assert class_of(error, USERS) is max(found, key=gravest_last.index)


def test_a_group_as_such_does_not_hide_what_it_holds() -> None:
    """Prevents: `Exception: PERMANENT` kills what a TaskGroup raises for a mere ConnectionError."""
    table: Classes = {Exception: PERMANENT, ConnectionError: TRANSIENT}
    assert class_of(ExceptionGroup("g", [ConnectionError()]), table) is TRANSIENT
    assert class_of(ExceptionGroup("g", [ValueError()]), table) is PERMANENT


def test_a_group_can_have_a_class_of_its_own() -> None:
    class Several(ExceptionGroup[Exception]):
        pass

    table: Classes = {Several: SYSTEM}
    assert class_of(Several("s", [ValueError()]), table) is SYSTEM
    assert class_of(ExceptionGroup("g", [ValueError()]), table) is TRANSIENT


def test_a_cause_does_not_count() -> None:
    error = ValueError("outer")
    error.__cause__ = Down()
    assert class_of(error, USERS) is TRANSIENT


# -- wrong tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [
        ({SYSTEM: Down}, "errors must map exception classes, got <ErrorClass.SYSTEM"),
        ({int: SYSTEM}, "<class 'int'>"),
        ({Down(): SYSTEM}, "must map exception classes"),
        ({Down: "system"}, "error class of Down must be an ErrorClass"),
        ({Down: VeryDown}, "error class of Down must be an ErrorClass"),
        ({Down: None}, "got None"),
    ],
)
def test_an_invalid_mapping_of_error_classes_is_refused(classes: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        checked_classes(classes)
