"""A search that is being typed is completed by fields, then by the values that are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.search.parser import parse
from windlass.core.search.suggest import FIELDS, MAX_SUGGESTIONS, suggest

KNOWN = {
    "kind": ["send_email", "send_sms", "a b"],
    "queue": ["mail"],
    "payload": ["order.id", "order.total"],
}


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("ki", ["kind:"]),
        ("-QU", ["-queue:"]),
        ("state:dead wo", ["state:dead worker:"]),
        ("kind:send_e", ["kind:send_email"]),
        ("kind:send_email,SEND_", ["kind:send_email,send_email", "kind:send_email,send_sms"]),
        ("kind:a", ['kind:"a b"']),
        ('kind:"a', ['kind:"a b"']),
        ("state:ret", ["state:retrying"]),
        ("since:1", ["since:15m", "since:1h", "since:1d"]),
        ("payload.order.i", ["payload.order.id:"]),
        ("payload.order.id:4", []),
        ('"timed ou', []),
        ('"kind:x" qu', ['"kind:x" queue:']),
        ("nothing", []),
    ],
)
def test_terms_are_completed_as_they_are_typed(typed: str, texts: list[str]) -> None:
    found = suggest(typed, len(typed), KNOWN)
    assert [typed[: each.start] + each.text + typed[each.end :] for each in found] == texts


def test_the_place_of_the_cursor_counts() -> None:
    (one,) = suggest("ki state:dead", 2)
    assert one == ("kind:", 0, 2, FIELDS[next(iter(FIELDS))])
    assert len(suggest("", 0)) == len(FIELDS)
    assert len(suggest("kind:", 5, {"kind": map(str, range(100))})) == MAX_SUGGESTIONS


@given(st.text(st.sampled_from(list('kind:se",-. \\*'))), st.integers(-1, 20))
def test_no_text_breaks_suggestions(text: str, position: int) -> None:
    for each in suggest(text, position, KNOWN):
        assert 0 <= each.start <= each.end <= len(text)


def test_a_suggested_value_can_be_read() -> None:
    for kind in KNOWN["kind"]:
        (found,) = suggest("kind:", 5, {"kind": [kind]})
        assert parse(f"kind:{found.text}").terms[0].values[0].text == kind
