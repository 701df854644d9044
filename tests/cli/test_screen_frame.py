"""The picture that `windlass top` draws, as text: at every size, and of every sort of trouble."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from tests.cli.sights import GROWS, NOW, busy, error, kind, looked, queue, worker
from windlass.cli.screen.alarms import alarms
from windlass.cli.screen.frame import Scene, frame, print_out
from windlass.cli.screen.panels import PANELS, Looked
from windlass.cli.screen.view import Ask, Lever, View
from windlass.core.job import Connections, job_id
from windlass.core.pauses import Pauses

NASTY = "\x1b[2J\x07\r\n东京😀👩\u200d👧\u202e<b>[red]"


def picture(
    sight: Looked | None,
    width: int = 80,
    height: int = 24,
    view: View | None = None,
    trouble: str = "",
) -> list[str]:
    """Return the lines of a picture, each as wide as it is."""
    scene = Scene(looked=sight, view=view or View(), trouble=trouble)
    return [line.plain for line in frame(scene, width, height)]


def told(sight: Looked) -> list[str]:
    return [each.told for each in alarms(sight)]


# -- how it looks ----------------------------------------------------------------------------------

DOCS = Path(__file__).parents[2] / "docs" / "top.md"


def test_the_picture_in_the_docs_is_this() -> None:
    shown = re.findall(r"^```text\n(.*?)^```$", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert "".join(f"{line.rstrip()}\n" for line in picture(busy())) == shown[0]


AT_40 = """\
windlass top  sqlite:///wi… 12:00:03 UTC
slots ━━━━━━━━── 17/20   needs 21.3
● queue mail grows: 12.4/s in, 10.1/s o…
● 21.3 slots are needed, and there are …
○ 11% of the runs of send_e…  +2 more: !
 1 queues      waiting  oldest    drains
▸mail            1,204   2m04s     never
 billing            30  15m12s    paused
 images             12   400ms      3.2s
q quit  ? help  tab panel  enter look"""


def test_a_small_picture_is_this() -> None:
    assert "\n".join(line.rstrip() for line in picture(busy(), 40, 10)) == AT_40


def test_a_wide_picture_shows_more() -> None:
    shown = "\n".join(picture(busy(), 140, 40))
    for part in ("later", "p99", "failures", "group", "a3f09c11d2", "process", "web1:41 "):
        assert part in shown
        assert part not in "\n".join(picture(busy(), 80, 24))


@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 9, 16, 19, 20, 24, 60])
def test_every_line_fits_at_every_size(height: int) -> None:
    ask = Ask(question="pause " * 30, lever=Lever(verb="pause", what="queue", name="x"))
    for view in (View(), View(panel=2, sheet="help"), View(asked=ask), View(typing=True)):
        for sight, width in product((None, looked(), busy()), (1, 2, 5, 19, 40, 121)):
            scene = Scene(looked=sight, view=view, trouble="gone " * 50)
            lines = frame(scene, width, height)
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
    sight = looked(queues=tuple(queue(name) for name in names))
    rows = frame(Scene(looked=sight, view=View()), 100, 24)[5:11]
    assert len({row.cell_len for row in rows}) == 1
    assert {row.plain[-9:] for row in rows} == {" ▁▂▃▄▅▆▇█"}


def test_nothing_that_a_job_says_reaches_the_terminal_as_a_control_character() -> None:
    sight = looked(
        queues=(queue(NASTY, pending=3, workers=0),),
        kinds=(kind(NASTY, failed=1_000),),
        errors=(error(NASTY, kind=NASTY, group=NASTY),),
        workers=(worker(NASTY, host=NASTY, queues=(NASTY,), state=NASTY),),
        pauses=Pauses(kinds=frozenset({NASTY}), keys=frozenset({NASTY})),
    )
    sight = replace(sight, location=NASTY)
    for view in (View(), View(sheet="alarms"), View(filter=NASTY), View(note=NASTY)):
        for line in picture(sight, 200, 60, view, trouble=NASTY):
            assert line.isprintable(), line
    assert any("东京😀👩👧" in line for line in picture(sight))


# -- many, few, none -------------------------------------------------------------------------------


def test_of_300_queues_those_are_seen_that_are_around_the_chosen_one() -> None:
    many = looked(
        queues=tuple(queue(f"q{each:03}") for each in range(300)),
        kinds=tuple(kind(f"k{each:03}") for each in range(50)),
        workers=(worker(),),
    )
    lines = picture(many, view=View(chosen=("q150", "", "", "")))
    assert any(line.startswith("▸q150") for line in lines)
    assert "1 queues 8 of…" in "\n".join(lines) or " of 300" in "\n".join(picture(many, 120, 24))
    for panel in PANELS:
        assert any(f" {panel.name}" in line for line in lines), "every panel has its place"
    last = picture(many, view=View(chosen=("q299", "", "", "")))
    assert any(line.startswith("▸q299") for line in last)


def test_what_one_panel_does_not_need_others_have() -> None:
    many = looked(queues=tuple(queue(f"q{each:03}") for each in range(300)), workers=(worker(),))
    assert sum(line[1:].startswith("q") for line in picture(many)) == 13


def test_an_empty_store_says_what_is_to_be_done() -> None:
    shown = "\n".join(picture(looked()))
    for part in ("no queue has jobs", "no run is recorded", "no job has failed", "windlass worker"):
        assert part in shown
    assert "all is well" not in shown


def test_nothing_is_made_up_before_the_store_has_answered() -> None:
    lines = picture(None, trouble="store lost for 3s, trying again: no route")
    assert "nothing is known yet" in "\n".join(lines)
    assert lines[-1] == "store lost for 3s, trying again: no route"
    assert not any(char.isdigit() for char in "".join(lines[2:4]))


def test_a_filter_that_finds_nothing_says_so() -> None:
    shown = "\n".join(picture(busy(), view=View(filter="nosuch")))
    assert "nothing here has 'nosuch' in it" in shown


# -- what is wrong ---------------------------------------------------------------------------------


def test_when_nothing_is_wrong_it_is_said() -> None:
    sight = looked(queues=(queue(pending=3),), kinds=(kind(failed=3),), workers=(worker(),))
    assert told(sight) == []
    assert "✓ all is well" in picture(sight)


def test_a_queue_that_grows_and_one_that_nobody_serves_come_first() -> None:
    grows = queue("slow", pending=9, drain_seconds=None, unknown={"drain_seconds": GROWS})
    sight = looked(
        queues=(
            queue("held", pending=500, paused=True),
            grows,
            queue("lost", pending=7, workers=0),
        ),
        workers=(worker(),),
        pauses=Pauses(queues=frozenset({"held"})),
    )
    assert told(sight) == [
        "queue slow grows: 1.0/s in, 1.0/s out",
        "no worker serves queue lost, and 7 jobs wait",
        "queue held is paused, and 500 jobs wait",
    ]


def test_what_no_worker_runs_is_told_and_is_no_growth() -> None:
    """Prevents: `grows: 0/s in, 0/s out` of jobs of a kind that nobody knows."""
    still: dict[str, Any] = {"arrival_rate": 0.0, "service_rate": 0.0, "drain_seconds": None}
    still["unknown"] = {"drain_seconds": GROWS}
    sight = looked(queues=(queue(pending=4, unserved=1, **still),), workers=(worker(),))
    assert told(sight) == ["queue mail has jobs of kinds that no worker runs"]
    held = replace(queue(pending=4, **still), jobs={"pending": 4})
    assert told(looked(queues=(held,), workers=(worker(),))) == [
        "nothing comes to queue mail or leaves it, and 4 jobs wait"
    ]
    assert told(looked(queues=(queue(pending=4, **still),), workers=(worker(),))) == [], "one runs"


def test_breakers_that_are_open_are_told() -> None:
    assert told(looked(workers=(worker(),), breakers=("smtp",))) == [
        "breaker smtp is open: windlass breakers list"
    ]
    assert told(looked(workers=(worker(),), half_open=("smtp",))) == [
        "breaker smtp is half-open: windlass breakers list"
    ]
    many = looked(workers=(worker(),), breakers=("a", "b", "c", "d"))
    assert told(many) == ["breakers a, b, c and 1 more are open: windlass breakers list"]


def test_figures_that_are_old_are_told_to_be() -> None:
    assert told(looked(workers=(worker(),), sample_age=29.0)) == []
    assert told(looked(workers=(worker(),), sample_age=45.0)) == [
        "no worker has counted for 45s: queues are told as they were then"
    ]


def test_without_a_worker_that_is_what_is_wrong_and_not_each_queue() -> None:
    sight = looked(queues=(queue(pending=1, workers=0), queue("b", pending=1, workers=0)))
    assert told(sight) == ["no worker runs, and 2 jobs wait: windlass worker module:attribute"]
    assert told(looked(queues=(queue(pending=1, workers=0),))) == [
        "no worker runs, and 1 job waits: windlass worker module:attribute"
    ]
    assert alarms(looked())[0].urgent is False, "nothing waits"


def test_what_is_not_known_yet_is_no_alarm() -> None:
    fresh = queue(pending=5, drain_seconds=None, unknown={"drain_seconds": "known after 30 s"})
    sight = looked(queues=(fresh,), workers=(worker(),))
    assert told(sight) == []
    row = next(line for line in picture(sight) if line.startswith("▸mail"))
    assert "never" not in row


def test_rates_that_are_not_known_are_told_with_the_reason() -> None:
    why = "known 30 s after a worker has started"
    sight = looked(workers=(worker(),), arrival_rate=None, unknown={"arrival_rate": why})
    assert told(sight) == [f"how much comes and leaves is not known: {why}"]


def test_kinds_that_fail_are_told_with_their_error() -> None:
    sight = looked(
        kinds=(kind(failed=700), kind("rare", runs=4, failed=4), kind("few", failed=12)),
        errors=(error("TimeoutError: smtp"),),
        workers=(worker(),),
    )
    (alarm,) = alarms(sight)
    assert (alarm.told, alarm.urgent) == (
        "58% of the runs of send_email fail: TimeoutError: smtp",
        True,
    )


def test_full_slots_and_pools_and_deaths_are_told() -> None:
    full = Connections(open=10, in_use=10, limit=10)
    sight = looked(
        queues=(queue(pending=4),),
        kinds=(kind(dead=1),),
        workers=(worker(busy=10, pool=full),),
    )
    lacking = replace(sight, stats=replace(sight.stats, slots_needed=12.5))
    assert alarms(lacking)[0].told == "12.5 slots are needed, and there are 10"
    assert told(sight) == [
        "1 job died in the last hour",
        "all 10 slots are busy, and 4 jobs wait",
        "worker web1-41 uses all of its 10 connections",
    ]


def test_a_kind_that_is_paused_can_be_found_though_it_has_not_run() -> None:
    sight = looked(workers=(worker(),), pauses=Pauses(kinds=frozenset({"send_email"})))
    assert any("paused send_email" in line for line in picture(sight))
    assert told(sight) == ["kind send_email is paused"]


# -- below -----------------------------------------------------------------------------------------


def test_the_last_line_asks_types_says_and_else_shows_keys() -> None:
    ask = Ask(question="pause queue mail?", lever=Lever(verb="pause", what="queue", name="mail"))
    assert picture(busy(), view=View(asked=ask))[-1] == "pause queue mail? y/n "
    assert picture(busy(), view=View(typing=True, filter="ma"))[-1].startswith("filter: ma")
    assert picture(busy(), view=View(note="done"))[-1] == "done"
    assert picture(busy(), view=View(filter="x"))[-1].startswith("esc all, not only 'x'")
    assert picture(busy(), view=View(sheet="help"))[-1].startswith("esc back")


def test_a_long_question_keeps_its_answer() -> None:
    lever = Lever(verb="redrive", what="error", name="x")
    ask = Ask(question="redrive " + "东" * 200 + "?", lever=lever)
    assert picture(busy(), 40, 10, View(asked=ask))[-1].endswith("… y/n ")


def test_a_sheet_ends_where_its_text_does() -> None:
    sheet = [Text(f"line {number}") for number in range(100)]
    scene = Scene(looked=busy(), view=View(sheet="row", top=10**6), sheet=sheet)
    lines = [line.plain for line in frame(scene, 80, 24)]
    assert lines[-2] == "line 99"
    assert "line 0" not in lines


def test_the_job_that_is_chosen_on_a_sheet_is_seen_and_marked() -> None:
    jobs = tuple(job_id(number, number) for number in range(1, 51))
    sheet = [Text(f"  2s  send_email  {each}") for each in jobs]
    for chosen in (0, 25, 49):
        view = View(sheet="row", jobs=jobs, job=chosen)
        lines = frame(Scene(looked=busy(), view=view, sheet=sheet), 80, 24)
        marked = [line.plain for line in lines if any(s.style == "reverse" for s in line.spans)]
        assert [str(jobs[chosen]) in line for line in marked] == [True]
        assert "enter the job" in lines[-1].plain


def test_help_fits_an_ordinary_terminal() -> None:
    lines = picture(busy(), 80, 24, View(sheet="help"))
    assert not any("…" in line for line in lines[4:-1])
    assert any("not known" in line for line in lines)


def test_on_paper_there_are_all_rows_and_no_keys() -> None:
    many = looked(queues=tuple(queue(f"q{each:03}") for each in range(300)), workers=(worker(),))
    lines = [line.plain for line in print_out(many, 80)]
    assert sum(line.startswith(" q") for line in lines) == 300
    assert not any("quit" in line or "▸" in line for line in lines)
    assert f"{NOW:%H:%M:%S} UTC" in lines[0]
