"""Which errors are the same error."""

from __future__ import annotations

import pytest

from windlass.core.failures.describe import describe
from windlass.core.failures.fingerprint import fingerprint, pattern, place
from windlass.core.jobs.job import ErrorInfo


def raised(message: str) -> ErrorInfo:
    try:
        raise ValueError(message)
    except ValueError as error:
        return describe(error)


def raised_elsewhere(message: str) -> ErrorInfo:
    try:
        raise ValueError(message)
    except ValueError as error:
        return describe(error)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user 17 is unknown", "user 4711 is unknown"),
        ("no such key: 'a'", "no such key: 'bcd'"),
        ('no such key: "a"', 'no such key: "it\'s"'),
        (
            "job 0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69 is gone",
            "job 0197f3a2-6c1e-7b60-8000-000000000000 is gone",
        ),
        ("<object at 0x7f1d2c4b5a69>", "<object at 0x7f0000000000>"),
        ("commit deadbeef01 is missing", "commit 0123456789abcdef is missing"),
        ("took 1.5 s at 10:20:30", "took 22.75 s at 11:00:01"),
        ("refused\nby host a", "refused\nby host b"),
    ],
)
def test_variable_parts_of_a_message_do_not_change_the_fingerprint(one: str, other: str) -> None:
    assert fingerprint("k", raised(one)) == fingerprint("k", raised(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user is unknown", "user is locked"),
        ("accede to it", "decade of it"),
        ("", "something"),
    ],
)
def test_other_words_are_another_error(one: str, other: str) -> None:
    assert fingerprint("k", raised(one)) != fingerprint("k", raised(other))


def test_kind_type_and_place_tell_errors_apart() -> None:
    error = raised("no")
    assert fingerprint("k", error) != fingerprint("other", error)
    assert fingerprint("k", error) != fingerprint("k", raised_elsewhere("no"))
    renamed = ErrorInfo(type="KeyError", message="no", traceback=error.traceback)
    assert fingerprint("k", error) != fingerprint("k", renamed)


def fail() -> None:
    raise ValueError("the cause")


def test_the_place_is_where_the_error_itself_was_raised_whatever_caused_it() -> None:
    try:
        try:
            fail()
        except ValueError as cause:
            raise KeyError("k") from cause
    except KeyError as error:
        told = describe(error)
    here = "test_the_place_is_where_the_error_itself_was_raised_whatever_caused_it"
    assert place(told) == f"test_fingerprint.py:{here}"
    assert place(ErrorInfo(type="X", message="")) == ""


def test_any_text_has_a_fingerprint() -> None:
    odd = ErrorInfo(type="X", message="\ud800\x00" + "9" * 100_000, traceback="File\n" * 1000)
    assert len(fingerprint("k", odd)) == 10
    assert pattern("") == ""
