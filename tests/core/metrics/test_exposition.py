"""What is written for Prometheus can be read by it, whatever names users invent."""

from __future__ import annotations

import re
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.metrics import exposition as metrics
from windlass.core.metrics.exposition import (
    LABEL_LIMIT,
    OTHER,
    Buckets,
    Family,
    bounded,
    exposition,
    label_of,
)
from windlass.core.metrics.families import FAMILIES

JOBS = Family("jobs_total", "counter", "Jobs.", ("queue",))
LINE = re.compile(r'jobs_total\{queue="((?:[^"\\\n]|\\["\\n])*)"\} 1')


def test_a_family_is_written_with_its_help_and_its_type() -> None:
    text = exposition([JOBS], {"jobs_total": {("mail",): 3}})
    assert (
        text == '# HELP jobs_total Jobs.\n# TYPE jobs_total counter\njobs_total{queue="mail"} 3\n'
    )


def test_a_histogram_is_written_with_its_buckets_sum_and_count() -> None:
    family = Family("took_seconds", "histogram", "Time.", (), bounds=(0.5, 1.0))
    lines = exposition([family], {"took_seconds": {(): Buckets([1, 2, 4], 9.25)}}).splitlines()
    assert lines[2:] == [
        'took_seconds_bucket{le="0.5"} 1',
        'took_seconds_bucket{le="1"} 2',
        'took_seconds_bucket{le="+Inf"} 4',
        "took_seconds_sum 9.25",
        "took_seconds_count 4",
    ]


@given(st.text(max_size=300))
def test_no_name_can_break_out_of_its_label(name: str) -> None:
    """Torture 48: quotes, backslashes, line breaks, control characters, lone surrogates."""
    _, _, line, *rest = exposition([JOBS], {"jobs_total": {(name,): 1}}).split("\n")
    assert LINE.fullmatch(line)
    assert rest == [""]
    line.encode()
    assert len(line) < 2_000


def test_a_forged_line_stays_within_its_label() -> None:
    forged = 'x"} 1\nwindlass_up{process="1"} 0\n# '
    text = exposition([JOBS], {"jobs_total": {(forged,): 1}})
    assert [line for line in text.splitlines() if line.startswith("windlass_up")] == []


@given(st.lists(st.text(max_size=3).map(lambda end: "x" * 200 + end), unique=True))
def test_long_names_that_begin_alike_are_distinguished(names: list[str]) -> None:
    assert len({label_of(name) for name in names}) == len(names)
    assert all(len(label_of(name)) == LABEL_LIMIT for name in names)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a\n", "a\\n"),
        ("a\ud800", "a\\ud800"),
        ("x" * 300, label_of("x" * 300)),
        ("a\n", label_of("a\n")),
    ],
)
def test_no_name_can_pass_for_another(one: str, other: str) -> None:
    """Prevents a queue that takes another's place in alerts, and a page that is refused."""
    assert label_of(one) != label_of(other)
    assert label_of(other).startswith(other[:50])


def test_a_short_name_is_shown_unchanged() -> None:
    assert label_of('größe "x"\\y') == 'größe "x"\\y'


def test_a_series_is_never_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents somebody who finds two names of one hash from blinding Prometheus."""
    monkeypatch.setattr(metrics, "sha256", lambda _: blake2b(b"always"))
    text = exposition([JOBS], {"jobs_total": {("x" * 300,): 1, ("x" * 301,): 2}})
    assert len([line for line in text.splitlines() if line.startswith("jobs_total")]) == 1


def test_names_beyond_the_bound_are_called_other() -> None:
    named = bounded({f"q{n}": float(n) for n in range(300)}, most=200)
    assert len(set(named.values())) == 201
    assert named["q299"] == "q299", "the heaviest are told apart"
    assert named["q0"] == OTHER


def test_every_family_has_a_sentence_and_a_name_that_fits_its_type() -> None:
    for family in FAMILIES.values():
        assert family.doc.endswith(".")
        assert re.fullmatch(r"windlass_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.type == "counter")
        assert bool(family.bounds) == (family.type == "histogram")
