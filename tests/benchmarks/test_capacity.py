"""Laws of the figures by which fleets are sized: how they get onto their page, and which."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.capacity import proc
from benchmarks.capacity.__main__ import main, measured
from benchmarks.capacity.others import Others
from benchmarks.capacity.table import PageMismatch, Table, names_on, placed, read, spread, write
from benchmarks.capacity.watch import Figures, Rounds
from benchmarks.program import ProgramFailed
from windlass.core.metrics.families import FAMILIES
from windlass.settings import describe_settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/capacity.md"
TABLE = Table(
    name="rates", head=("slots", "jobs/s", "µs"), rows=[["ten", 12_345.6, 0.5], ["one", 7, None]]
)
WRITTEN = """\
<!-- capacity:rates -->
| slots | jobs/s | µs |
| --- | ---: | ---: |
| ten | 12,346 | 0.50 |
| one | 7 |  |
<!-- /capacity -->"""

WIDEST = 125
OLD = replace(TABLE, date="2025-01-02", others=0.1)

needs_proc = pytest.mark.skipif(not proc.is_there(), reason="the accounts are Linux's, in /proc")


def test_figures_are_written_with_as_many_digits_as_they_are_worth() -> None:
    assert TABLE.markdown() == WRITTEN


def test_a_table_says_when_it_was_measured_and_warns_if_others_used_the_machine() -> None:
    assert "\n\nMeasured on 2025-01-02, while others used 0.1 CPUs.\n<!--" in OLD.markdown()
    assert "busy machine" not in OLD.markdown()
    busy = replace(OLD, others=0.6)
    assert "**On a busy machine**: Measured on 2025-01-02, while others used 0.6" in busy.markdown()


def test_a_rate_of_several_rounds_is_their_median_with_the_least_and_the_greatest() -> None:
    assert spread([1200.0, 900.0, 1000.0]) == "1,000 (900 to 1,200)"
    assert spread([12.0]) == "12.0"


def test_rounds_tell_rates_one_by_one_and_costs_of_all_together() -> None:
    first = Figures(jobs=10, seconds=1, worker_cpu=0.1, server_cpu=0, wal=100, ran_dry=False)
    second = replace(first, jobs=30, worker_cpu=0.5)
    found = Rounds([first, second])
    assert found.rates == "20.0 (10.0 to 30.0)"
    assert found.whole.worker_micros == pytest.approx(15_000)
    assert [each["case"] for each in found.raw("x")] == ["x, round 1", "x, round 2"]


def test_a_table_takes_its_own_place_on_the_page_and_leaves_the_rest_alone() -> None:
    other = "<!-- capacity:other -->\nold\n<!-- /capacity -->"
    page = f"before\n<!-- capacity:rates -->\nold\n<!-- /capacity -->\nbetween\n{other}\nafter\n"
    assert placed(page, [TABLE]) == f"before\n{WRITTEN}\nbetween\n{other}\nafter\n"


def test_a_table_without_a_place_is_refused_so_that_no_figure_is_lost() -> None:
    with pytest.raises(PageMismatch, match="capacity:rates"):
        placed("nothing here", [TABLE])


def test_measurements_can_be_saved_and_loaded(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "capacity.json", [TABLE])
    (found,) = read(tmp_path / "deep" / "capacity.json")
    assert found.markdown() == WRITTEN


def test_the_page_names_only_metrics_and_settings_that_exist() -> None:
    page = PAGE.read_text("utf-8")
    series = set(re.findall(r"\bwindlass_[a-z_]+\b", page))
    suffixes = ("_bucket", "_sum", "_count")
    unknown = {
        name
        for name in series
        if name not in FAMILIES
        and not any(name.removesuffix(suffix) in FAMILIES for suffix in suffixes)
    }
    assert series
    assert not unknown
    variables = set(re.findall(r"\bWINDLASS_[A-Z_]+\b", page))
    assert not variables - {setting.variable for setting in describe_settings()}


def test_the_lines_of_the_page_can_be_read_without_a_wide_window() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    assert not [line for line in lines if len(line) > WIDEST and not line.startswith("|")]


@needs_proc
def test_a_process_is_known_by_its_family_its_cpu_time_and_its_memory() -> None:
    spend = "sum(range(3_000_000)); input()"
    with subprocess.Popen(
        [sys.executable, "-c", spend], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.pid in proc.family(os.getpid())
        while proc.cpu_seconds([child.pid]) < 0.01:
            assert child.poll() is None
        found = proc.memory(child.pid)
        assert 0 < found.own <= found.resident


def test_figures_that_were_kept_are_printed_and_put_on_the_page_without_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, page = tmp_path / "capacity.json", tmp_path / "page.md"
    write(kept, [TABLE])
    page.write_text("<!-- capacity:rates -->\nold\n<!-- /capacity -->\n", encoding="utf-8")
    assert main(["--read", str(kept), "--page", str(page)]) == 0
    assert page.read_text("utf-8") == WRITTEN + "\n" == capsys.readouterr().out


@needs_proc
def test_a_part_that_fails_takes_neither_the_others_nor_what_was_there_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, page = tmp_path / "capacity.json", tmp_path / "page.md"
    first, second, third = (replace(OLD, name=name) for name in ("first", "second", "third"))
    page.write_text("\n".join(each.markdown() for each in (first, second, third)), "utf-8")

    def fail() -> list[Table]:
        assert [each.name for each in read(kept)] == ["first", "second"]  # Kept at once.
        raise ProgramFailed("timed out")

    parts = {"a": lambda: [replace(first, date="")], "b": fail, "c": lambda: [third]}
    tables, failed = measured(parts, server=os.getpid(), kept=[first, second], json=kept, page=page)
    assert failed == ["b"]
    assert "timed out" in capsys.readouterr().err
    assert [each.name for each in tables] == ["first", "third"]
    dates = {each.name: each.date for each in read(kept)}
    today = dates["first"]
    assert dates == {"first": today, "second": OLD.date, "third": today}
    assert today > OLD.date
    assert page.read_text("utf-8").count(f"Measured on {today}") == 2
    assert second.markdown() in page.read_text("utf-8")


@needs_proc
def test_the_cpu_of_other_programs_excludes_our_own() -> None:
    busy = proc.busy_seconds()
    others, ours = Others(os.getpid()), proc.all_seconds([os.getpid()])
    began = time.monotonic()
    while proc.all_seconds([os.getpid()]) < ours + 1.1:
        sum(range(10_000))
    spent = proc.all_seconds([os.getpid()]) - ours
    seconds, used = time.monotonic() - began, others.cpus()
    assert used is not None
    # What all have used since is more than what others did, at least by what we did.
    assert used * seconds + 0.8 * spent <= proc.busy_seconds() - busy + 0.1 * seconds
    assert Others(os.getpid()).cpus() is None  # Too short to tell.


@needs_proc
@pytest.mark.long
@pytest.mark.again  # It takes minutes, and all CPUs.
@pytest.mark.timeout(600)
def test_a_whole_run_fills_every_place_of_the_page(tmp_path: Path) -> None:
    kept, page = tmp_path / "capacity.json", tmp_path / "page.md"
    emptied = re.sub(r"(?<= -->\n)\|[^<]*(?=<!-- /capacity)", "", PAGE.read_text("utf-8"))
    page.write_text(emptied, encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.capacity", "--quick"]
    done = subprocess.run(
        [*command, "--page", str(page), "--json", str(kept)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = {table.name for table in read(kept)}
    assert set(names_on(emptied)) - measured <= {"pgbouncer"}  # Where that is not installed.
    assert page.read_text("utf-8").count("-->\n|") == len(measured)
    assert "-->\n|" not in emptied
