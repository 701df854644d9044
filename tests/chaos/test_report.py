"""The report as text, JSON and page: the same facts, and no text from outside does harm."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from tests.chaos.histories import OTHER, WORKER, accepted, completed, history, job, run, strike
from windlass.chaos.laws.checker import LAWS, check
from windlass.chaos.laws.verdict import Standing, Verdict, Violation
from windlass.chaos.observation.memory import WorkerMemory
from windlass.chaos.options import Options
from windlass.chaos.plan import FaultKind
from windlass.chaos.report.page import page_of
from windlass.chaos.report.report import Report, StrikeReport, command_of, report_of
from windlass.chaos.report.text import lines_of
from windlass.chaos.terms import SCHEDULE
from windlass.core.document_fields.chaos import SHAPES

ONE, TWO = job(1), job(2)
EVIL = "<script>alert(1)</script>\"'&\x1b[31m\n</title>"


def report(*parts: Any, **others: Any) -> Report:
    past = history(*parts)
    made = report_of(
        past,
        check(past),
        options=Options(seed=7, **others),
        impossible={FaultKind.FILL_DISK: "it is your disk"},
        began=0.0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert {each.law for each in made.verdicts} == {law.name for law in LAWS}
    return made


TICK = completed(job(9), "tick", schedule=SCHEDULE, tick="2026-01-01T00:00:01+00:00")
GOOD = (
    TICK,
    run(job(9), 6, 6.5, kind="tick"),
    accepted(ONE),
    run(ONE, 1),
    strike(2, 3, WORKER, note="process 101"),
    run(ONE, 4, 5, attempt=2, pid=OTHER),
    completed(ONE, attempt=2),
)


def evil() -> Report:
    made = report(*GOOD)
    verdict = Verdict(
        law=EVIL,
        promise=EVIL,
        standing=Standing.BROKEN,
        checked=1,
        violations=(Violation(subject=EVIL, problem=EVIL),),
        count=3,
        note=EVIL,
    )
    strikes = tuple(msgspec.structs.replace(s, fault=EVIL, note=EVIL) for s in made.strikes)
    return msgspec.structs.replace(
        made,
        ok=False,
        store=EVIL,
        command=EVIL,
        version=EVIL,
        directory=EVIL,
        outcomes={EVIL: 1},
        impossible={EVIL: EVIL},
        verdicts=(verdict,),
        strikes=strikes,
    )


def test_a_run_that_kept_every_law_says_so_with_its_seed() -> None:
    text = "\n".join(lines_of(report(*GOOD)))

    assert report(*GOOD).ok
    assert "seed 7" in text
    assert "BROKEN" not in text
    assert "windlass chaos --store sqlite --seed 7 " in text
    assert "fill-disk             it is your disk" in text
    assert "1 interrupted, again after 1.00 s (p50), 1.00 s (max)" in text
    assert "not possible effects" in text
    assert "not tried    flows" in text


def test_a_run_that_lost_a_job_names_it_and_the_law() -> None:
    made = report(*GOOD, accepted(TWO))
    lines = list(lines_of(made))

    assert not made.ok
    assert lines[-1] == "BROKEN: outcomes"
    assert any(TWO in line for line in lines)
    assert TWO in page_of(made)


@pytest.mark.parametrize("parts", [(), GOOD[1:]], ids=["nothing", "no tick"])
def test_a_run_without_the_evidence_of_every_run_is_not_ok(parts: tuple[object, ...]) -> None:
    made = report(*parts)
    last = list(lines_of(made))[-1]

    assert not made.ok
    assert last.startswith("NOT TRIED: ")
    assert "ticks" in last
    assert "producers" not in last
    assert last in html.unescape(page_of(made))


def test_no_law_is_kept_where_there_was_nothing_to_check() -> None:
    standings = {each.law: each.standing for each in report().verdicts}

    assert Standing.KEPT not in standings.values()
    assert standings["effects"] is Standing.NOT_POSSIBLE


def test_json_has_all_that_the_text_has() -> None:
    made = report(*GOOD)

    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_every_field_of_the_json_report_is_documented_and_no_other() -> None:
    def fields(kind: type[msgspec.Struct]) -> set[str]:
        return {each.encode_name for each in msgspec.structs.fields(kind)}

    shapes: dict[str, type[msgspec.Struct]] = {
        "report of chaos": Report,
        "verdict of chaos": Verdict,
        "violation": Violation,
        "fault of chaos": StrikeReport,
        "memory of a worker": WorkerMemory,
    }
    assert {name: set(SHAPES[name]) for name in shapes} == {
        name: fields(kind) for name, kind in shapes.items()
    }
    assert set(SHAPES) == set(shapes)


def test_text_and_page_show_the_memory_of_the_worker_that_served_longest() -> None:
    memory = (WorkerMemory(pid=7, seconds=60.0, first=40_000_000, last=41_500_000),)
    made = msgspec.structs.replace(report(*GOOD), memory=memory)
    text = list(lines_of(made))

    assert (
        "memory of the worker that served longest, 60 s: 40.0 MB in the first quarter, 41.5 MB in "
        "the last"
    ) in text
    assert "40.0 MB in the first quarter" in page_of(made)


class Tags(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "rect", "line", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def test_a_page_loads_nothing_runs_nothing_and_closes_its_tags() -> None:
    for made in (report(*GOOD), report(), evil()):
        page = page_of(made)
        seen = Tags()
        seen.feed(page)

        assert not seen.open
        assert not seen.tags & {"script", "link", "img", "iframe", "a", "object", "form"}
        assert not [name for name in seen.attributes if name.startswith("on")]
        assert not seen.attributes & {"src", "href"}
        assert "default-src 'none'" in page
        assert not re.search(r"https?://", page)


def test_text_from_outside_is_inert_in_page_and_terminal() -> None:
    page, text = page_of(evil()), list(lines_of(evil()))

    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert not [line for line in text if "\x1b" in line or "\n" in line]


def test_the_timeline_shows_each_fault_and_each_recovery() -> None:
    page = page_of(report(*GOOD))

    assert page.count('class="fault"') == 1
    assert page.count('class="back"') == 1
    assert 'class="first"' not in page
    assert "SIGKILL to a worker process; process 101" in page


def test_the_first_start_after_a_fault_is_in_text_page_and_json() -> None:
    made = report(*GOOD, accepted(TWO), run(TWO, 3.25, 4), completed(TWO))

    assert "first start after 0.25 s" in "\n".join(lines_of(made))
    assert page_of(made).count('class="first"') == 1
    assert "<td>0.25 s</td>" in page_of(made)
    (strike_,) = made.strikes
    assert (strike_.first_start, strike_.first_start_at) == (0.25, 3.25)


def test_a_page_has_no_empty_notes_and_no_long_numbers() -> None:
    page = page_of(report(*GOOD))

    assert "></div>" not in page
    assert not re.search(r"[0-9]\.[0-9]{4}", page)


def test_a_storm_that_was_cut_short_is_shown_as_such() -> None:
    made = msgspec.structs.replace(report(*GOOD), is_cut_short=True)

    assert "Ctrl-C ended the storm before its time" in lines_of(made)
    assert "Ctrl-C" in page_of(made)
    assert "Ctrl-C" not in page_of(report(*GOOD))


def test_the_command_has_no_password() -> None:
    secret = command_of(Options(url="postgresql://me:hunter2@host/db", only=(FaultKind.FILL_DISK,)))

    assert "hunter2" not in secret
    assert "--only fill-disk" in secret
