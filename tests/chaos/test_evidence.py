"""The evidence of a run that was kept: it can be judged again from its files."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.chaos.histories import LEASE, OTHER, WORKER, completed, job, strike
from windlass.chaos.laws.checker import check
from windlass.chaos.laws.history import Change, History, Record, Share, Ticking
from windlass.chaos.ledger import Ledger
from windlass.chaos.options import Options
from windlass.chaos.report import evidence
from windlass.chaos.report.report import Report, report_of

ONE, TWO = job(1), job(2)


def kept(directory: Path, *records: Record) -> Report:
    """Write a ledger of two accepted jobs, and keep a run with these records."""
    ledger = Ledger(directory / "ledger")
    ledger.write_all("offered", [(ONE, "plain"), (TWO, "plain")], mark="1")
    ledger.write_all("accepted", [(ONE, "plain"), (TWO, "plain")])
    past = History(
        entries=ledger.entries(),
        records=records,
        strikes=[strike(2, 3, WORKER, OTHER, note="process 101")],
        lease=LEASE,
        effects={ONE: [1]},
        watched=1,
        changes=[Change(job=ONE, before="completed", after="dead", seen_at=1.0)],
        ticking=Ticking(first="2026-01-01T00:00:01+00:00", began=1.0, ended=9.0),
        shares=[Share(began=1.0, ended=2.0, part=0.5)],
    )
    report = report_of(
        past,
        check(past),
        options=Options(seed=7),
        impossible={},
        began=0.0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    evidence.keep(directory, past, report)
    return report


@pytest.mark.parametrize("records", [(), (completed(ONE), completed(TWO))], ids=["lost", "there"])
def test_a_run_that_was_kept_is_judged_alike_from_its_files(
    records: tuple[Record, ...], tmp_path: Path
) -> None:
    report = kept(tmp_path, *records)

    again = evidence.judge_again(tmp_path)
    assert again == replace(report, directory=str(tmp_path))
    (lost,) = (each.count for each in again.verdicts if each.law == "outcomes")
    assert lost == 2 - len(records)


def test_the_module_prints_the_report_once_more(tmp_path: Path) -> None:
    kept(tmp_path)
    said = subprocess.run(
        [sys.executable, "-m", "windlass.chaos.report.evidence", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said.startswith("windlass ")
    assert "BROKEN: outcomes" in said
