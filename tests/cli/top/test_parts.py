"""The small parts of `windlass top`: figures, sparklines, cells, columns that fit, plain signs."""

from __future__ import annotations

import io

import pytest
from rich.segment import Segment
from rich.text import Text
from textual.color import Color

from windlass.cli.output.sparklines import bar, spark
from windlass.cli.top.content.cells import fitted, printable
from windlass.cli.top.content.columns import Column, fit, line
from windlass.cli.top.screens.plain_signs import PlainSigns, is_unicode
from windlass.core.values import figures

# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (figures.count(9_999), "9,999"),
        (figures.count(12_345), "12.3k"),
        (figures.count(999_960), "1.0M"),
        (figures.count(60_000, capped=True), "60.0k+"),
        (figures.rate(None), "-"),
        (figures.rate(0.0), "0"),
        (figures.rate(0.001), "<0.01"),
        (figures.rate(0.997), "1.00"),
        (figures.rate(0.9999), "1.0"),
        (figures.rate(99.97), "100"),
        (figures.rate(123_456.0), "123k"),
        (figures.span(None), "-"),
        (figures.span(0.0), "0s"),
        (figures.span(0.0012), "1.2ms"),
        (figures.span(0.9999), "1s"),
        (figures.span(2.54), "2.5s"),
        (figures.span(12.54), "13s"),
        (figures.span(59.97), "1m00s"),
        (figures.span(3_599.7), "1h00m"),
        (figures.span(90_000.0), "1d01h"),
        (figures.span(1e9), "11,574d"),
        (figures.share(0.001), "<1%"),
        (figures.share(0.11), "11%"),
        (figures.size(231_000_000), "231M"),
        (figures.size(None), "-"),
    ],
)
def test_figures_are_short(written: str, expected: str) -> None:
    assert written == expected


# -- sparklines ------------------------------------------------------------------------------------


def test_a_sparkline_shows_the_latest_at_the_right_and_nothing_as_nothing() -> None:
    assert spark([0, 1, 4, 8], 6) == "  ▁▂▅█"
    assert spark([8, 8, 1, 8], 2) == "▂█"
    assert spark([0, 0], 2) == "▁▁"
    assert spark([0.0001, 1000], 2) == "▂█", "what is more than nothing is seen"
    assert spark([], 3) == "   "
    assert spark([1], 0) == ""
    assert spark([-1, 5], 2) == "▁█"


def test_a_sparkline_has_the_scale_that_it_is_given() -> None:
    assert spark([1], 1, most=10) == "▂"
    assert spark([20], 1, most=10) == "█"


def test_a_bar_is_full_when_all_is_used_and_not_empty_when_some_is() -> None:
    assert bar(0.0, 4) == ("", "────")
    assert bar(0.01, 4) == ("━", "───")
    assert bar(7.0, 4) == ("━━━━", "")


# -- cells -----------------------------------------------------------------------------------------


def test_no_text_steers_the_terminal() -> None:
    nasty = "\x1b[2J\x1b]0;x\x07\r\n\t\x9b1m\u202e\u200b\x00\udc80"
    shown = printable(nasty)
    assert shown.isascii()
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d👩\u200d👧", "👩👩👧"),
        ("❤\ufe0f", "❤"),
        ("👍\U0001f3fd", "👍"),
        ("🇩🇪", "DE"),
        ("e\u0301", "é"),
        ("x" + "\u0336" * 50, "x\u0336\u0336"),
        ("東京", "東京"),
    ],
)
def test_text_is_as_wide_as_every_terminal_believes(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "mail", "東京都庁舎", "a東京", "😀😀😀", "x" * 30])
@pytest.mark.parametrize("width", range(1, 9))
def test_a_cell_has_exactly_its_width(text: str, width: int) -> None:
    assert fitted(Text(text), width).cell_len == width
    assert fitted(Text(text), width, right=True).cell_len == width


# -- tables ----------------------------------------------------------------------------------------

COLUMNS = (
    Column(name="name", width=6, max_width=10),
    Column(name="a", width=4, number=True),
    Column(name="b", width=4, rank=1, number=True),
    Column(name="c", width=4, max_width=8, rank=2, graph=True),
)


def test_lesser_columns_go_first_and_what_is_left_over_is_shared_in_order() -> None:
    assert fit(COLUMNS, 24) == {0: 6, 1: 4, 2: 4, 3: 4}
    assert fit(COLUMNS, 23) == {0: 10, 1: 4, 2: 4}
    assert fit(COLUMNS, 12) == {0: 6, 1: 4}
    assert fit(COLUMNS, 100) == {0: 10, 1: 4, 2: 4, 3: 8}
    assert fit(COLUMNS, 3)[0] >= 1, "whatever the room, something is left of the first"


def test_a_graph_is_cut_where_the_oldest_is() -> None:
    cells = (Text("mail"), Text("1"), Text("2"), Text("▁▂▃▄▅▆▇█"))
    assert line(COLUMNS, fit(COLUMNS, 24), cells).plain == "mail       1     2  ▅▆▇█"


# -- a terminal without Unicode --------------------------------------------------------------------


def test_a_terminal_without_our_signs_gets_plain_ones_of_the_same_width() -> None:
    line = [Segment("▁█ ━─ ● … 東."), Segment("é")]
    plain = PlainSigns().apply(line, Color(0, 0, 0))
    assert "".join(segment.text for segment in plain) == "_# #- * ~ ? .?"
    assert not is_unicode(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert is_unicode(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
