"""The picture that `windlass top` draws, as text: at every size, and of every sort of trouble."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.screen_contents import GROWS, NOW, busy, error, kind, queue, snapshot, worker
from windlass.app.snapshot import Snapshot
from windlass.cli.top.content.panels import PANELS
from windlass.cli.top.content.picture import picture as draw
from windlass.cli.top.content.picture import print_out
from windlass.cli.top.selection import Selection
from windlass.core.alarms import find_alarms
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.depths import Connections
from windlass.core.stats.shortage import Shortage

NASTY = "\x1b[2J\x07\r\n东京😀👩\u200d👧\u202e<b>[red]"


def picture(
    figures: Snapshot | None,
    width: int = 80,
    height: int = 24,
    *,
    selected: int = 0,
    only: str = "",
) -> list[str]:
    """Return the lines of a picture, without the last one, which is the screen's."""
    selection = Selection()
    selection.filter = only
    selection.move(figures, selected)
    return [line.plain for line in draw(figures, selection, width, height - 1)]


def texts(figures: Snapshot) -> list[str]:
    return [alarm.text for alarm in find_alarms(figures.stats, figures.pauses)]


# -- how it looks ----------------------------------------------------------------------------------

AT_40 = """\
windlass top  sqlite:///wi… 12:00:03 UTC
slots ━━━━━━━━── 17/20   needs 21.3
● queue mail grows: 12.4/s in, 10.1/s o…
● 21.3 slots are needed, but there are …
○ 11% of the runs of send_e…  +2 more: !
 1 queues      waiting  oldest  empty in
▸mail            1,204   2m04s     never
 billing            30  15m12s    paused
 images             12   400ms      3.2s"""


def test_a_small_picture_is_this() -> None:
    assert "\n".join(line.rstrip() for line in picture(busy(), 40, 10)) == AT_40


def test_a_wide_picture_shows_more() -> None:
    shown = "\n".join(picture(busy(), 140, 40))
    for part in ("later", "p99", "failures", "group", "a3f09c11d2", "process", "web1:41 "):
        assert part in shown
        assert part not in "\n".join(picture(busy(), 80, 24))


@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 9, 16, 19, 20, 24, 60])
def test_every_line_fits_at_every_size(height: int) -> None:
    for figures, width in product((None, snapshot(), busy()), (1, 2, 5, 19, 40, 121)):
        lines = draw(figures, Selection(), width, height)
        assert len(lines) == height
        assert max(line.cell_len for line in lines) <= width


def test_columns_stand_below_each_other_whatever_is_in_them() -> None:
    """Prevents: a wide or joined character that moves all that is right of it."""
    names = [
        "东京" * 9,
        "😀" * 20,
        "e\u0301" * 40,
        "👩\u200d👩\u200d👧" * 9,
        "🇩🇪🇫🇷" * 9,
        "\x1b[31m" * 9,
    ]
    figures = snapshot(queues=tuple(queue(name) for name in names))
    rows = draw(figures, Selection(), 100, 23)[5:11]
    assert len({row.cell_len for row in rows}) == 1
    assert {row.plain[-9:] for row in rows} == {" ▁▂▃▄▅▆▇█"}


def test_nothing_that_a_job_says_reaches_the_terminal_as_a_control_character() -> None:
    figures = snapshot(
        queues=(queue(NASTY, pending=3, workers=0),),
        kinds=(kind(NASTY, failed=1_000),),
        errors=(error(NASTY, kind=NASTY, group=NASTY),),
        workers=(worker(NASTY, host=NASTY, queues=(NASTY,), state=NASTY),),
        pauses=Pauses(kinds=frozenset({NASTY}), keys=frozenset({NASTY})),
    )
    figures = replace(figures, location=NASTY)
    for line in (*picture(figures, 200, 60), *picture(figures, 200, 60, only=NASTY)):
        assert line.isprintable(), line
    assert any("东京😀👩👧" in line for line in picture(figures))


# -- many, few, none -------------------------------------------------------------------------------


def test_of_300_queues_those_are_seen_that_are_around_the_chosen_one() -> None:
    many = snapshot(
        queues=tuple(queue(f"q{each:03}") for each in range(300)),
        kinds=tuple(kind(f"k{each:03}") for each in range(50)),
        workers=(worker(),),
    )
    lines = picture(many, selected=150)
    assert any(line.startswith("▸q150") for line in lines)
    assert "1 queues 8 of…" in "\n".join(lines) or " of 300" in "\n".join(picture(many, 120, 24))
    for panel in PANELS:
        assert any(f" {panel.name}" in line for line in lines), "every panel has its place"
    last = picture(many, selected=299)
    assert any(line.startswith("▸q299") for line in last)


def test_rows_that_one_panel_does_not_need_go_to_the_others() -> None:
    many = snapshot(queues=tuple(queue(f"q{each:03}") for each in range(300)), workers=(worker(),))
    assert sum(line[1:].startswith("q") for line in picture(many)) == 13


def test_an_empty_store_says_what_is_to_be_done() -> None:
    shown = "\n".join(picture(snapshot()))
    for part in (
        "no queue has jobs",
        "no runs in the last hour",
        "no job has failed",
        "windlass worker",
    ):
        assert part in shown
    assert "all is well" not in shown


def test_nothing_is_made_up_before_the_store_has_answered() -> None:
    lines = picture(None)
    assert "no data yet" in "\n".join(lines)
    assert not any(char.isdigit() for char in "".join(lines[2:4]))


def test_a_filter_that_finds_nothing_says_so() -> None:
    shown = "\n".join(picture(busy(), only="nosuch"))
    assert "nothing matches 'nosuch'" in shown


# -- what is wrong ---------------------------------------------------------------------------------


def test_when_nothing_is_wrong_it_is_said() -> None:
    figures = snapshot(queues=(queue(pending=3),), kinds=(kind(failed=3),), workers=(worker(),))
    assert texts(figures) == []
    assert "✓ all is well" in picture(figures)


def test_a_queue_that_grows_and_one_that_nobody_serves_come_first() -> None:
    grows = queue("slow", pending=9, seconds_to_empty=None, unknown={"seconds_to_empty": GROWS})
    figures = snapshot(
        queues=(
            queue("held", pending=500, paused=True),
            grows,
            queue("lost", pending=7, workers=0),
        ),
        workers=(worker(),),
        pauses=Pauses(queues=frozenset({"held"})),
    )
    assert texts(figures) == [
        "queue slow grows: 1.0/s in, 1.0/s out",
        "no worker serves queue lost, and 7 jobs wait",
        "queue held is paused, and 500 jobs wait",
    ]


def test_unserved_jobs_are_reported_and_do_not_count_as_growth() -> None:
    """Prevents: `grows: 0/s in, 0/s out` of jobs of a kind that nobody knows."""
    still: dict[str, Any] = {"arrival_rate": 0.0, "service_rate": 0.0, "seconds_to_empty": None}
    still["unknown"] = {"seconds_to_empty": GROWS}
    figures = snapshot(queues=(queue(pending=4, unserved=1, **still),), workers=(worker(),))
    assert texts(figures) == ["queue mail has jobs of kinds that no worker handles"]
    held = replace(queue(pending=4, **still), jobs={"pending": 4})
    assert texts(snapshot(queues=(held,), workers=(worker(),))) == [
        "queue mail is stuck: no jobs in or out, and 4 jobs wait"
    ]
    assert texts(snapshot(queues=(queue(pending=4, **still),), workers=(worker(),))) == [], (
        "one runs"
    )


def test_breakers_that_are_open_are_texts() -> None:
    assert texts(snapshot(workers=(worker(),), breakers=("smtp",))) == [
        "breaker smtp is open: windlass breakers list"
    ]
    assert texts(snapshot(workers=(worker(),), half_open=("smtp",))) == [
        "breaker smtp is half-open: windlass breakers list"
    ]
    many = snapshot(workers=(worker(),), breakers=("a", "b", "c", "d"))
    assert texts(many) == ["breakers a, b, c and 1 more are open: windlass breakers list"]


def test_old_figures_are_marked_as_old() -> None:
    assert texts(snapshot(workers=(worker(),), sample_age=29.0)) == []
    assert texts(snapshot(workers=(worker(),), sample_age=45.0)) == [
        "no worker has sampled for 45s; rates are that old"
    ]
    assert texts(snapshot(workers=(worker(),), sample_age=12.0, count_age=12.0)) == [
        "counting takes too long; queue sizes are 12s old"
    ]


def test_without_a_worker_that_is_what_is_wrong_and_not_each_queue() -> None:
    figures = snapshot(queues=(queue(pending=1, workers=0), queue("b", pending=1, workers=0)))
    assert texts(figures) == [
        "no worker is running, and 2 jobs wait: windlass worker module:attribute"
    ]
    assert texts(snapshot(queues=(queue(pending=1, workers=0),))) == [
        "no worker is running, and 1 job waits: windlass worker module:attribute"
    ]
    assert find_alarms((empty := snapshot()).stats, empty.pauses)[0].urgent is False, (
        "nothing waits"
    )


def test_figures_that_are_unknown_yet_raise_no_alarm() -> None:
    fresh = queue(
        pending=5, seconds_to_empty=None, unknown={"seconds_to_empty": "known after 30 s"}
    )
    figures = snapshot(queues=(fresh,), workers=(worker(),))
    assert texts(figures) == []
    row = next(line for line in picture(figures) if line.startswith("▸mail"))
    assert "never" not in row


def test_unknown_rates_are_shown_with_the_reason() -> None:
    why = "known 30 s after a worker has started"
    figures = snapshot(workers=(worker(),), arrival_rate=None, unknown={"arrival_rate": why})
    assert texts(figures) == [f"rates are unknown: {why}"]


def test_failing_kinds_are_shown_with_their_error() -> None:
    figures = snapshot(
        kinds=(kind(failed=700), kind("rare", runs=4, failed=4), kind("few", failed=12)),
        errors=(error("TimeoutError: smtp"),),
        workers=(worker(),),
    )
    (alarm,) = find_alarms(figures.stats, figures.pauses)
    assert (alarm.text, alarm.urgent) == (
        "58% of the runs of send_email fail: TimeoutError: smtp",
        True,
    )


def test_full_slots_and_pools_and_deaths_are_texts() -> None:
    full = Connections(open=10, in_use=10, limit=10)
    figures = snapshot(
        queues=(queue(pending=4),),
        kinds=(kind(dead=1),),
        workers=(worker(busy=10, pool=full),),
    )
    lacking = replace(figures, stats=replace(figures.stats, slots_needed=12.5))
    assert (
        find_alarms(lacking.stats, lacking.pauses)[0].text
        == "12.5 slots are needed, but there are 10"
    )
    assert texts(figures) == [
        "1 job died in the last hour",
        "all 10 slots are busy, and 4 jobs wait",
        "worker web1-41 uses all of its 10 connections",
    ]


def test_a_shortage_of_threads_is_shown_with_the_option_that_adds_some() -> None:
    short = Shortage(
        pool="threads",
        count=2,
        kinds=("send_email",),
        workers=("web1-41",),
        message="all 2 threads are in use, and jobs of kind send_email are waiting for one",
        remedy="more threads",
    )
    figures = snapshot(
        queues=(queue("mail", pending=58),),
        workers=(worker(threads=2, in_threads=2),),
        threads=2,
        in_threads=2,
        threads_needed=6.5,
        short=(short,),
    )
    assert f"{short.message}; 6.5 are needed: --threads N" in texts(figures)
    assert "threads 2/2" in picture(figures, width=120)[1]


def test_a_kind_that_is_paused_can_be_found_though_it_has_not_run() -> None:
    figures = snapshot(workers=(worker(),), pauses=Pauses(kinds=frozenset({"send_email"})))
    assert any("paused send_email" in line for line in picture(figures))
    assert texts(figures) == ["kind send_email is paused"]


# -- on paper --------------------------------------------------------------------------------------


def test_on_paper_there_are_all_rows_and_no_keys() -> None:
    many = snapshot(queues=tuple(queue(f"q{each:03}") for each in range(300)), workers=(worker(),))
    lines = [line.plain for line in print_out(many, 80)]
    assert sum(line.startswith(" q") for line in lines) == 300
    assert not any("quit" in line or "▸" in line for line in lines)
    assert f"{NOW:%H:%M:%S} UTC" in lines[0]


def test_the_age_of_the_rates_is_beside_the_clock_where_there_is_room() -> None:
    """All else is counted at each look, so that two figures may be of different moments."""
    sampled = snapshot(workers=(worker(),), sample_age=8.2)
    assert picture(sampled)[0].rstrip().endswith("  rates sampled 8s ago  12:00:03 UTC")
    once = snapshot(workers=(worker(),), arrival_rate=None, service_rate=None)
    for unknown in (once, snapshot()):
        assert picture(unknown)[0].rstrip().endswith("  rates unknown yet  12:00:03 UTC")
    assert "rates" not in picture(sampled, width=59)[0]
