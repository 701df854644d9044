"""The laws of text from outside: whatever it holds, it can be stored, and shown without effect."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.values.text import inert, inert_lines, storable

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
any_text = st.text(st.characters() | st.sampled_from("\x00\x1b\ud800\udfff" + BIDI + SEPARATORS))


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b31mred", r"\x9b31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("one\ntwo", r"one\ntwo"),
        ("over\rwrite", r"over\rwrite"),
        ("a\tb", r"a\tb"),
        ("a\x08b", r"a\x08b"),
        ("a\x00b", r"a\x00b"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\ud800", r"\ud800"),
        ("plain text, ünïcödé, 漢字, 🙂", "plain text, ünïcödé, 漢字, 🙂"),
    ],
)
def test_text_in_a_line_is_shown_without_effect(hostile: str, shown: str) -> None:
    assert inert(hostile) == shown


@pytest.mark.parametrize("mark", BIDI, ids=lambda mark: f"U+{ord(mark):04X}")
def test_no_text_can_turn_the_direction_of_what_follows(mark: str) -> None:
    assert mark not in inert(f"safe{mark}evil")
    assert mark not in inert_lines(f"safe{mark}evil")


@given(any_text)
def test_a_line_stays_one_line(text: str) -> None:
    assert len(inert(text).splitlines()) <= 1


@given(any_text)
def test_no_control_character_or_surrogate_is_left_in_a_line(text: str) -> None:
    assert not {unicodedata.category(character) for character in inert(text)} & {"Cc", "Cs"}


@given(any_text)
def test_a_block_keeps_its_lines_and_tabs_and_nothing_else(text: str) -> None:
    shown = inert_lines(text)
    assert not {character for character in shown if unicodedata.category(character) == "Cc"} - {
        "\n",
        "\t",
    }
    assert shown.count("\n") == text.count("\n")
    assert shown.count("\t") == text.count("\t")


@given(any_text)
def test_plain_text_stays_unchanged(text: str) -> None:
    assert inert(inert(text)) == inert(text)
    assert inert_lines(inert_lines(text)) == inert_lines(text)


@given(any_text, st.integers(0, 40))
def test_stored_text_is_utf8_without_nul(text: str, limit: int) -> None:
    stored = storable(text, limit)
    assert "\x00" not in stored
    assert stored.encode().decode() == stored


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)), st.integers(0, 40))
def test_stored_text_is_bounded_by_its_limit_and_a_line_that_says_so(text: str, limit: int) -> None:
    assert len(storable(text, limit)) <= limit + len("\n... 1,000,000 characters left out ...\n")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_text_within_the_limit_is_stored_as_it_is(text: str) -> None:
    assert storable(text, len(text)) == text


def test_long_text_keeps_its_head_and_its_tail_and_says_how_much_is_gone() -> None:
    stored = storable("head" + "x" * 1_000 + "tail", 8)
    assert stored.startswith("head")
    assert stored.endswith("tail")
    assert "1,000 characters left out" in stored
