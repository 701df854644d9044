"""The small parts of `windlass top`: keys, figures, sparklines, cells, and tables that fit."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from windlass.cli.screen import figures
from windlass.cli.screen.cells import cut, fitted, tame
from windlass.cli.screen.grid import Field, fit, line
from windlass.cli.screen.keys import MOST_PASTED, Keys
from windlass.cli.screen.paint import Painter
from windlass.cli.screen.tail import Tail
from windlass.cli.sparks import bar, spark

# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"j", ["j"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA\x1bOB", ["up", "down"]),
        (b"\x1b[1;5C", ["right"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page up", "page down", "home", "end"]),
        (b"\r\n\x1bOM\t\x1b[Z", ["enter", "enter", "enter", "tab", "back"]),
        (b"\x7f\x08\x0c", ["backspace", "backspace", "redraw"]),
        (b"\x1b[24~\x1b[<0;3;4M", []),
        (b"\x1bq", []),
        (b"\x00\x01\x1f", []),
        ("ä東".encode(), ["ä", "東"]),
        (b"\xff\xfeq", ["q"]),
        (b"\x1b[200~y\r\x1b[201~n", ["paste:y\r", "n"]),
    ],
)
def test_bytes_become_keys(sent: bytes, keys: list[str]) -> None:
    assert Keys().feed(sent) == keys


@pytest.mark.parametrize(
    "sent", [b"\x1b[1;5Aq", "\x1b[5~東\x1b[A".encode(), b"\x1b[200~ab\x1b[201~q"]
)
def test_a_slow_line_cuts_no_key_in_two(sent: bytes) -> None:
    keys = Keys()
    found = [key for each in sent for key in keys.feed(bytes([each]))]
    assert found == Keys().feed(sent)
    assert found


def test_an_escape_is_a_key_only_when_nothing_follows() -> None:
    keys = Keys()
    assert (keys.feed(b"\x1b"), keys.waiting) == ([], True)
    assert (keys.flush(), keys.waiting) == (["escape"], False)
    assert keys.feed(b"\x1b\x1b[A") == ["escape", "up"]


def test_a_paste_that_pauses_presses_no_key() -> None:
    """Prevents: `ry` in a text that a slow line delivers in two pieces redrives a group."""
    keys = Keys()
    assert keys.feed(b"\x1b[200~hello") == []
    assert (keys.flush(), keys.pasting) == ([], True)
    assert keys.feed(b"ry\x1b[20") == []
    assert keys.flush() == []
    assert keys.feed(b"1~q") == ["paste:hellory", "q"]
    assert (keys.waiting, keys.pasting) == (False, False)


def test_a_paste_is_bounded_and_its_end_is_found() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b[200~") == []
    for piece in (b"y" * MOST_PASTED, b"01~" * MOST_PASTED, b"\x1b[201"):
        assert keys.feed(piece) == []
    pasted, after = keys.feed(b"~j")
    assert (pasted[:6], after) == ("paste:", "j")
    assert len(pasted) < 100


def test_a_paste_whose_end_was_lost_is_given_up() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b[200~hello") == []
    keys.give_up()
    assert (keys.waiting, keys.feed(b"q")) == (False, ["q"])


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
    shown = tame(nasty)
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
    assert tame(text) == shown


@pytest.mark.parametrize("text", ["", "mail", "東京都庁舎", "a東京", "😀😀😀", "x" * 30])
@pytest.mark.parametrize("width", range(1, 9))
def test_a_cell_has_exactly_its_width(text: str, width: int) -> None:
    assert fitted(Text(text), width).cell_len == width
    assert fitted(Text(text), width, right=True).cell_len == width
    assert cell_len(cut(text, width)) <= width


# -- tables ----------------------------------------------------------------------------------------

FIELDS = (
    Field(name="name", width=6, most=10),
    Field(name="a", width=4, number=True),
    Field(name="b", width=4, rank=1, number=True),
    Field(name="c", width=4, most=8, rank=2, graph=True),
)


def test_lesser_columns_go_first_and_what_is_left_over_is_shared_in_order() -> None:
    assert fit(FIELDS, 24) == {0: 6, 1: 4, 2: 4, 3: 4}
    assert fit(FIELDS, 23) == {0: 10, 1: 4, 2: 4}
    assert fit(FIELDS, 12) == {0: 6, 1: 4}
    assert fit(FIELDS, 100) == {0: 10, 1: 4, 2: 4, 3: 8}
    assert fit(FIELDS, 3)[0] >= 1, "whatever the room, something is left of the first"


def test_a_graph_is_cut_where_the_oldest_is() -> None:
    cells = (Text("mail"), Text("1"), Text("2"), Text("▁▂▃▄▅▆▇█"))
    assert line(FIELDS, fit(FIELDS, 24), cells).plain == "mail       1     2  ▅▆▇█"


# -- what is sent ----------------------------------------------------------------------------------


def test_only_lines_that_changed_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    painter = Painter()
    first = painter.paint([Text("one"), Text("two", "red")], 10)
    assert b"one" in first
    assert b"two" in first
    assert painter.paint([Text("one"), Text("two", "red")], 10) == b""
    second = painter.paint([Text("one"), Text("three")], 10)
    assert b"one" not in second
    assert b"\x1b[2;1Hthree\x1b[K" in second
    painter.forget()
    assert b"one" in painter.paint([Text("one"), Text("three")], 10)


def test_a_line_of_full_width_keeps_its_last_character() -> None:
    assert b"\x1b[K" not in Painter().paint([Text("x" * 10)], 10)


def test_colours_are_off_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert b"\x1b[31m" in Painter().paint([Text("x", "red")], 10)
    monkeypatch.setenv("NO_COLOR", "1")
    assert b"\x1b[31m" not in Painter().paint([Text("x", "red")], 10)


def test_a_terminal_without_our_signs_gets_plain_ones() -> None:
    sent = Painter("ascii").paint([Text("▁█ ━─ ● … 東")], 20)
    assert b"_# #- * ~ ?" in sent
    assert sent.isascii()


def test_of_what_is_said_meanwhile_only_the_end_is_kept() -> None:
    """Prevents: a library that warns at every look fills the memory in a week of looking."""
    tail = Tail()
    for number in range(5_000):
        print("warning", number, file=tail)
    assert tail.end.endswith("warning 4999\n")
    assert len(tail.end) == 10_000
