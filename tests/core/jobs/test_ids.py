"""The beginnings of ids: how they are read, and how long they must be to tell jobs apart."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from windlass.core.jobs.ids import read_id, shortened

JOB = UUID("0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69")


@pytest.mark.parametrize("text", [str(JOB), JOB.hex, str(JOB).upper(), f" {JOB}\n"])
def test_a_whole_id_is_read_with_dashes_and_without(text: str) -> None:
    assert read_id(text) == (JOB, JOB)


@pytest.mark.parametrize("length", range(4, 32))
def test_a_beginning_spans_all_ids_that_begin_so(length: int) -> None:
    first, last = read_id(JOB.hex[:length])
    assert first <= JOB <= last
    assert last.int - first.int == (1 << 4 * (32 - length)) - 1
    assert (first, last) == read_id(JOB.hex[:length].upper())


def test_dashes_are_only_for_people() -> None:
    assert read_id("0197f3a2-6c") == read_id("0197f3a26c") == read_id("0197-f3a2-6c-")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("", "must have up to 32 hexadecimal digits, got ''; copy one"),
        ("----", "must have up to 32 hexadecimal digits"),
        ("send_email", "must have up to 32 hexadecimal digits, got 'send_email'"),
        (JOB.hex + "0", "must have up to 32 hexadecimal digits"),
        ("٠١٢٣٤", "must have up to 32 hexadecimal digits"),
        ("019", "must have at least 4 digits, got '019'; add more"),
    ],
)
def test_text_that_is_no_prefix_of_an_id_is_refused(text: str, condition: str) -> None:
    with pytest.raises(ValueError, match=re.escape(condition)):
        read_id(text)


def test_shown_ids_are_as_long_as_they_must_be_to_differ() -> None:
    far = UUID("0197f3a2-7c1e-7b60-8000-3f1d2c4b5a69")
    near = UUID("0197f3a2-6c1e-7b60-8100-3f1d2c4b5a69")
    next_to = UUID("0197f3a2-6c1e-7b60-8000-3f1d2c4b5a6a")
    assert shortened([JOB]) == ["0197f3a2-6c1e-7b60"]
    assert shortened([far, JOB]) == ["0197f3a2-7c1e-7b60", "0197f3a2-6c1e-7b60"]
    assert shortened([near, JOB]) == ["0197f3a2-6c1e-7b60-81", "0197f3a2-6c1e-7b60-80"]
    assert shortened([JOB, next_to]) == [str(JOB), str(next_to)]
    assert shortened([JOB, JOB]) == ["0197f3a2-6c1e-7b60"] * 2
    assert shortened([]) == []


def test_every_shown_id_can_be_read_again() -> None:
    ids = [UUID(int=JOB.int + (1 << 4 * n)) for n in range(30)]
    for text, job in zip(shortened(ids), ids, strict=True):
        first, last = read_id(text)
        assert [each for each in ids if first <= each <= last] == [job]
