"""Owns the evidence of a run in its directory: beside the ledger, what the store and chaos knew.

`python -m windlass.chaos.report.evidence DIRECTORY` judges a run that was kept once more, with the
laws of the release that is installed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import structs

from windlass.chaos.laws.checker import check, failures
from windlass.chaos.laws.history import History
from windlass.chaos.ledger import Ledger
from windlass.chaos.report.report import Report
from windlass.chaos.report.text import lines_of

LEDGER = "ledger"
_HISTORY, _REPORT = "history.json", "report.json"


def keep(directory: Path, history: History, report: Report) -> None:
    """Write what was known besides the ledger: records, strikes and the rest, and the report."""
    without_ledger = replace(history, entries=())
    (directory / _HISTORY).write_bytes(msgspec.json.encode(without_ledger))
    (directory / _REPORT).write_bytes(msgspec.json.encode(report))


def judge_again(directory: Path) -> Report:
    """Return the report of a run that was kept, with the verdicts of today's laws."""
    known = msgspec.json.decode((directory / _HISTORY).read_bytes(), type=History)
    report = msgspec.json.decode((directory / _REPORT).read_bytes(), type=Report)
    verdicts = check(replace(known, entries=Ledger(directory / LEDGER).entries()))
    return structs.replace(
        report,
        verdicts=tuple(verdicts),
        ok=not failures(verdicts),
        directory=str(directory),
    )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines_of(judge_again(Path(sys.argv[1]))))
