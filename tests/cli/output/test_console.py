"""How things look: tables that fit, and durations that can be read."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from rich.text import Text

from windlass.cli.output import console as show
from windlass.cli.output.tables import Column, Listing

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
