"""How things look: tables that fit, and durations that can be read."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.text import Text

from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

ID = "0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def printed(width: int) -> list[str]:
    out = io.StringIO()
    listing = Listing(
        Column("id"),
        Column("queue", rank=1),
        Column("n", rank=2, number=True),
        Column("error", stretch=True),
    )
    listing.add(Text(ID), Text("mail"), Text("5"), Text("a long story about what went wrong"))
    listing.print(Console(file=out, width=width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_where_there_is_room_everything_is_shown() -> None:
    assert printed(200)[2] == f"{ID}  mail   5  a long story about what went wrong"


def test_a_table_is_plain_where_the_output_has_no_lines() -> None:
    """Prevents an error instead of a table where the output's encoding is that of a bare system."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    listing = Listing(Column("queue"), Column("n", number=True))
    listing.add(Text("mail"), Text("5"))
    listing.print(Console(file=out, width=200))
    out.seek(0)
    assert out.read().splitlines() == ["queue  n", "--------", "mail   5"]


def test_numbers_end_and_other_cells_begin_below_each_other() -> None:
    """Prevents that wide characters, which take two places, move what follows them."""
    out = io.StringIO()
    listing = Listing(Column("queue"), Column("n", number=True), Column("what"))
    listing.add(Text("mail"), Text("5"), Text("a"))
    listing.add(Text("帳票"), Text("1,000"), Text("b"))
    listing.print(Console(file=out, width=200))
    assert out.getvalue().splitlines() == [
        "queue      n  what",
        "──────────────────",
        "mail       5  a",
        "帳票   1,000  b",
    ]


@pytest.mark.parametrize(
    ("width", "columns"),
    [(70, ["id", "queue", "n", "error"]), (62, ["id", "queue", "error"]), (56, ["id", "error"])],
)
def test_the_lesser_columns_go_before_any_id_is_cut(width: int, columns: list[str]) -> None:
    head, _, row = printed(width)
    assert head.split() == columns
    assert row.startswith(ID)
    assert row.endswith("…")
    assert len(row) <= width


def test_no_id_is_cut_even_where_nothing_fits() -> None:
    assert printed(20)[2].startswith(ID)


def test_an_instant_is_shown_with_its_distance_from_now() -> None:
    assert show.ago(NOW - timedelta(minutes=5), NOW) == "5m00s ago"
    assert show.ago(NOW + timedelta(seconds=5), NOW) == "in 5s"
    assert show.moment(NOW, NOW) == "2026-03-01 00:00:00.000Z  (0ms ago)"
    assert show.moment(None, NOW) == show.ago(None, NOW) == ""


def test_a_cell_is_one_line_of_bounded_length() -> None:
    shown = show.cell("x\ny\x1b[31m" + "z" * 500).plain
    assert shown.startswith("x\\ny\\x1b[31m")
    assert len(shown) == 120


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "has_escapes"), [("", True), ("1", False)])
def test_no_color_leaves_no_escape_sequence(
    monkeypatch: pytest.MonkeyPatch, no_color: str, has_escapes: bool
) -> None:
    """Prevents dim and bold text, which are no colours, from being left where nothing is wanted."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    show.note("a note")
    show.error("an error")
    show.say(show.cell("a cell", "bold red"))
    assert ("\x1b" in terminal.getvalue()) is has_escapes


@pytest.mark.parametrize(("closed", "command"), [(1, ["jobs", "list"]), (2, ["stats"])])
def test_a_command_does_its_work_without_an_output(
    shop: Shell, start: Start, closed: int, command: list[str]
) -> None:
    """Prevents a traceback where the caller closed the stream: Python has None in its place."""
    shop.enqueue()
    args = [sys.executable, "-m", "windlass", *command]
    program = f"import os; os.close({closed}); os.execv({sys.executable!r}, {args})"
    said = shop.ended(start("-c", program))
    assert (said.code, said.err) == (0, "")
